"""Programs for the tests of the artifact store, and what can go wrong with a stored file."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from alloccheck.compile.objectfile import read_object
from alloccheck.container import Container, from_bytes, to_bytes

ROOT = Path(__file__).parents[1]

COUNTING = """
import json, sys
import llvmlite.binding as ll
import numba
from numba.core import codegen, compiler

compiled = []
_begin = compiler.CompilerBase.__init__
def _count(self, *args, **options):
    compiled.append("function")
    _begin(self, *args, **options)
compiler.CompilerBase.__init__ = _count
_emit = ll.TargetMachine.emit_object
def _emitted(self, module):
    compiled.append("object")
    return _emit(self, module)
ll.TargetMachine.emit_object = _emitted
"""
"""Counts what Numba compiles and LLVM emits, in ``compiled``."""


def imported(folder: Path, name: str, text: str) -> ModuleType:
    """Write a module, import it afresh, and return it."""
    file = folder / f"{name}.py"
    file.write_text(text)
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # The bytecode cache goes by time stamps, which a test is faster than.
    exec(compile(text, str(file), "exec"), vars(module))
    return module


def run(folder: Path, text: str, **environment: str) -> Any:
    """Run a program in a process of its own and return the JSON of its last line."""
    program = folder / "program.py"
    program.write_text(COUNTING + text)
    paths = [str(ROOT / "src"), str(folder), *(one for one in sys.path if one)]
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# --- damage ---------------------------------------------------------------------------------------


def _flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _truncate(data: bytearray, dice: random.Random) -> None:
    del data[dice.choice((0, 1, dice.randrange(len(data)), len(data) - 1)) :]


def _extend(data: bytearray, dice: random.Random) -> None:
    data += dice.randbytes(dice.choice((1, 8, 4096)))


def _blank(data: bytearray, dice: random.Random) -> None:
    start, size = dice.randrange(len(data)), dice.choice((1, 16, 4096))
    old = bytes(data[start : start + size])
    data[start : start + size] = bytes(len(old)) if any(old) else b"\xff" * len(old)


def _repeat(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    data[start:start] = data[start : start + dice.randrange(1, 64)]


def _remove(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data))
    del data[start : start + dice.randrange(1, 64)]


def _noise(data: bytearray, dice: random.Random) -> None:
    data[:] = dice.randbytes(dice.randrange(0, 2048))


DAMAGES = (_flip, _flip, _flip, _truncate, _extend, _blank, _repeat, _remove, _noise)


def damaged(content: bytes, seed: int) -> bytes:
    """Return a file's content with damage, without a new checksum."""
    dice = random.Random(seed)
    data = bytearray(content)
    dice.choice(DAMAGES)(data, dice)
    return bytes(data)


WORDS = (None, True, -1, 0, 2**70, "", "x", "float64", [], {}, [[]], "\ud800", 1.5)


def forged(content: bytes, seed: int) -> bytes:
    """Return content whose code or header was changed under a checksum that fits again.

    Only what a reader can tell: a description that nobody compares with anything may be anything.
    """
    dice = random.Random(seed)
    container = from_bytes(content)
    record, parts = json.loads(json.dumps(container.record)), dict(container.parts)
    if dice.random() < 0.4:
        code = bytearray(parts["object"])
        sections = read_object(bytes(code)).sections
        section = dice.choice([one for one in sections if one.data and not one.writable])
        place = code.index(section.data) + dice.randrange(len(section.data))
        code[place] ^= 1 << dice.randrange(8)
        parts["object"] = bytes(code)
    elif dice.random() < 0.1:
        parts.pop("object")
    else:
        holder, key = dice.choice(list(_compared(record)))
        old = holder[key]
        holder[key] = dice.choice(
            [one for one in WORDS if one != old or type(one) is not type(old)]
        )
        if dice.random() < 0.2:
            del holder[key]
    return to_bytes(Container(record, parts))


def _compared(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for name in ("format", "key", "configuration", "artifact", "certificate", "report", "read"):
        yield record, name
    for name in ("symbol", "digest", "returns", "externals", "root_environment", "environments",
                 "triple", "data_layout", "sources", "captures"):  # fmt: skip
        yield record["artifact"], name
    for name in ("schema", "function", "signature", "guarantee", "ignore_throw", "first_call",
                 "entry", "proved", "digest", "configuration"):  # fmt: skip
        yield record["certificate"], name
    for name in ("file", "line"):
        yield record["report"], name


Read = Callable[[bytes], str | None]
"""Tries to bring content back; returns why it was refused, or None when it was accepted."""


def wrongly_accepted(content: bytes, read: Read, seeds: range) -> list[tuple[str, int]]:
    """Return the damages and forgeries, by kind and seed, that a reader took for the original."""
    found = []
    for seed in seeds:
        kind, change = ("forged", forged) if seed % 4 == 0 else ("damaged", damaged)
        other = change(content, seed)
        if other != content and read(other) is None:
            found.append((kind, seed))
    return found
