"""Settings from pyproject.toml: what is read, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from alloccheck.config import Config, load_config
from alloccheck.effects import Guarantee
from alloccheck.errors import UsageError

FULL = """
[tool.alloccheck]
guarantee = "nonblocking"
ignore_throw = false
first_call = "forbid"
strict = true
store = "kept"

[tool.alloccheck.jit]
fastmath = true

[tool.alloccheck.signatures]
"dsp:gain" = ["void(float32[::1], float32)", "void(float64[::1], float64)"]

[[tool.alloccheck.contracts]]
symbol = "rt_*"
effects = []
reason = "the ring buffer is preallocated"
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "pyproject.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_everything_is_read_from_the_nearest_file(tmp_path: Path):
    write(tmp_path, "[tool.alloccheck]\nstrict = true\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    file = write(tmp_path / "a", FULL)
    config = load_config(inner)
    assert config == Config(
        file=file,
        guarantee=Guarantee.NONBLOCKING,
        ignore_throw=False,
        first_call="forbid",
        strict=True,
        store=str(file.parent / "kept"),
        jit={"fastmath": True},
        signatures={"dsp:gain": ("void(float32[::1], float32)", "void(float64[::1], float64)")},
        contracts=({"symbol": "rt_*", "effects": [], "reason": "the ring buffer is preallocated"},),
    )


def test_defaults_hold_without_a_section(tmp_path: Path):
    write(tmp_path, "[project]\nname = 'x'\n")
    config = load_config(tmp_path)
    assert (config.file, config.guarantee) == (None, Guarantee.NONALLOCATING)
    assert (config.ignore_throw, config.first_call, config.strict) == (True, "prepare", False)
    assert not config.jit and not config.signatures and not config.contracts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[tool.alloccheck]\nignore_thorw = true",
            ["tool.alloccheck.ignore_thorw", "'ignore_throw'"],
        ),
        ("[tool.alloccheck]\nzzz = true", ["tool.alloccheck.zzz", "known are guarantee, "]),
        ("[tool.alloccheck]\nstrict = 'yes'", ["tool.alloccheck.strict", "true or false", "'yes'"]),
        (
            "[tool.alloccheck]\nguarantee = 'nonalocating'",
            ["tool.alloccheck.guarantee", "'nonallocating', 'nonblocking'", "'nonalocating'"],
        ),
        ("[tool.alloccheck]\nfirst_call = 1", ["tool.alloccheck.first_call", "'prepare'", "1"]),
        ("[tool.alloccheck]\nguarantee = []", ["tool.alloccheck.guarantee", "[]"]),
        ("[tool.alloccheck]\njit = 3", ["tool.alloccheck.jit", "a table"]),
        ("[tool.alloccheck]\ncontracts = {}", ["tool.alloccheck.contracts", "array of tables"]),
        ("[tool.alloccheck]\ncontracts = [1]", ["tool.alloccheck.contracts", "a table"]),
        ("[tool.alloccheck.signatures]\n'dsp' = []", ["module:function", "dsp"]),
        ("[tool.alloccheck.signatures]\n'd:f' = 'x'", ["d:f", "list of signature strings"]),
        ("[tool]\nalloccheck = 1", ["tool.alloccheck", "a table"]),
        ("[tool.alloccheck", ["cannot be read as TOML"]),
    ],
)
def test_mistakes_name_file_key_and_what_was_expected(tmp_path: Path, text, words):
    file = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_config(tmp_path)
    for word in [str(file), *words]:
        assert word in str(caught.value)
