"""Whatever people or files say: an answer or a clear error, never a traceback of ours.

IR text is attacked in ``test_llvm_reader``, ELF files and machine code in ``test_machine_images``
and ``test_machine_code``, stored artifacts in ``test_store``.
"""

import contextlib
import copy
import json
import tomllib
from pathlib import Path

from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alloccheck import CompileError, UsageError, analyze
from alloccheck.analysis.contracts import ContractTable, parse_contracts
from alloccheck.certificate import Certificate
from alloccheck.cli import COMMANDS, main
from alloccheck.config import Config, load_config
from alloccheck.errors import AllocCheckException, ContractError

SOURCE = Path(__file__).parent.parent / "src" / "alloccheck"
TABLES = sorted((SOURCE / "analysis" / "contract_tables").glob("*.toml"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)

CONFIG = """
[tool.alloccheck]
guarantee = "nonblocking"
ignore_throw = false
first_call = "forbid"
strict = true
store = ".store"
jit = {fastmath = true}

[tool.alloccheck.signatures]
"kernels:step" = ["float64(float64)"]

[[tool.alloccheck.contracts]]
symbols = ["my_helper"]
effects = []
reason = "it adds"
"""


def mutated(text, rng):
    """Return `text` with one to four small wounds."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        until = min(len(text), at + rng.choice([0, 1, 1, 7, 60]))
        put = rng.choice(["", "", '"', "[", "]", "=", "\n", "{", "\x00", "é", "-1", "true", '"x"'])
        text = text[:at] + put + text[until:]
    return text


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TABLES), st.randoms(use_true_random=False))
def test_wounded_contracts_are_read_or_refused_by_name(table, rng):
    lines = table.read_text(encoding="utf-8").splitlines()
    start = rng.randrange(len(lines))
    text = mutated("\n".join(lines[start : start + 60]), rng)
    try:
        found = parse_contracts(text, "mine.toml")
    except ContractError as error:
        assert "mine.toml" in str(error)
        return
    assert len(ContractTable(found).entries) == len(found)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["contract", "contracts", "symbol"]), JSON, max_size=2), JSON
)
def test_contracts_of_any_form_are_read_or_refused(document, entry):
    for one in (document, {"contract": [entry]}, {"contract": [{"symbols": ["f"], "x": entry}]}):
        text = toml(one)
        if text is not None:
            try:
                parse_contracts(text, "mine.toml")
            except ContractError as error:
                assert "mine.toml" in str(error)


def toml(document):
    """Write plain data as TOML where TOML has a form for it."""

    def value(one):
        if isinstance(one, bool):
            return str(one).lower()
        if isinstance(one, int | float):
            return repr(one)
        if isinstance(one, str):
            return json.dumps(one)
        if isinstance(one, list):
            return "[" + ", ".join(map(value, one)) + "]"
        if isinstance(one, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in one.items()) + "}"
        return '""'

    text = "\n".join(f"{json.dumps(key)} = {value(one)}" for key, one in document.items())
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError):
        return None
    return text


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_wounded_configuration_is_read_or_refused_with_its_file(tmp_path_factory, rng):
    file = tmp_path_factory.mktemp("project") / "pyproject.toml"
    file.write_text(mutated(CONFIG, rng), encoding="utf-8")
    try:
        assert isinstance(load_config(file.parent), Config)
    except UsageError as error:
        assert str(file) in str(error)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_configuration(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("project") / "pyproject.toml"
    file.write_bytes(data)
    try:
        assert load_config(file) == Config()
    except UsageError as error:
        assert str(file) in str(error)


def certificate():
    """Return the certificate of a small proof as plain data."""
    return analyze(scaled, "(float64, float64)").certificate.to_json()


def scaled(x, by):
    return x * by


CERTIFICATE = certificate()


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), JSON)
def test_a_changed_certificate_is_read_or_refused(rng, instead):
    data = copy.deepcopy(CERTIFICATE)
    place = data
    while True:
        key = rng.choice(sorted(place)) if isinstance(place, dict) else rng.randrange(len(place))
        inner = place[key]
        if rng.random() < 0.5 or not isinstance(inner, dict | list) or not inner:
            break
        place = inner
    if rng.random() < 0.3:
        del place[key]
    else:
        place[key] = instead
    try:
        found = Certificate.from_json(data)
    except UsageError as error:
        assert "not a certificate" in str(error)
        return
    assert Certificate.from_json(found.to_json()).to_json() == found.to_json()


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_anything_else_is_no_certificate(data):
    try:
        Certificate.from_json(data)
    except UsageError as error:
        assert "not a certificate" in str(error)
    else:
        raise AssertionError("accepted")


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=30)
    | st.lists(
        st.sampled_from(["int64", "float64", "(", ")", "[", "::1", ",", "]", "x", "void"])
    ).map("".join)
)
def test_any_text_as_signature(text):
    try:
        report = analyze(scaled, text)
    except (UsageError, CompileError) as error:
        assert str(error)
        return
    assert report.signature


WORDS = st.sampled_from(
    [
        *COMMANDS,
        "--help",
        "--version",
        "--format",
        "json",
        "text",
        "html",
        "sarif",
        "--output",
        "--signature",
        "-s",
        "(float64,)",
        "float64[",
        "--guarantee",
        "nonblocking",
        "nonsense",
        "--confirm",
        "--strict",
        "--all",
        "--effects",
        "--verbose",
        "--",
        "-m",
        "os.path",
        "no.such.module:f",
        "no_such_file.py",
        "libm.so.6",
        "/dev/null",
        "/proc/self/mem",
        "sin",
        "",
        ":",
        "::",
        "\x00",
        "é",
        "-1",
    ]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS | st.text(max_size=6), max_size=5))
def test_any_words_on_the_command_line_end_with_a_code(tmp_path_factory, words):
    with contextlib.chdir(tmp_path_factory.mktemp("words")):
        result = CliRunner().invoke(main, words, catch_exceptions=True)
    ended = result.exception is None or isinstance(result.exception, SystemExit)
    assert ended or isinstance(result.exception, AllocCheckException), (words, result.exception)
    assert result.exit_code in (0, 1, 2), (words, result.output)
    assert "Traceback" not in result.output
    if result.exit_code == 2:
        assert result.output.strip(), words
