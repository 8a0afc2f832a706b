"""Numba's settings that print a compile print hermetic ones too, each time."""

from __future__ import annotations

import pytest
from numba.core import config

from alloccheck import hermetic


def loop(limit):
    total = 0
    for step in range(limit):
        total += step * step
    return total


HEADERS = {
    "DUMP_BYTECODE": "RETURN_VALUE",
    "DUMP_IR": "IR DUMP: loop",
    "DUMP_FUNC_OPT": "FUNCTION OPTIMIZED DUMP loop",
    "DUMP_OPTIMIZED": "-OPTIMIZED DUMP loop",
    "DUMP_ASSEMBLY": "-ASSEMBLY loop",
}


@pytest.mark.parametrize("setting", HEADERS)
def test_what_is_asked_for_is_printed_at_each_compile(setting, monkeypatch, capsys):
    plain = hermetic("int64(int64)")(loop)
    capsys.readouterr()
    monkeypatch.setenv(f"NUMBA_{setting}", "1")
    dumped = hermetic("int64(int64)")(loop)
    assert HEADERS[setting] in capsys.readouterr().out
    dumped.recompile()
    assert HEADERS[setting] in capsys.readouterr().out
    monkeypatch.delenv(f"NUMBA_{setting}")
    config.reload_config()
    hermetic("int64(int64)")(loop)
    assert capsys.readouterr().out == ""
    (before,) = plain.artifacts.values()
    (after,) = dumped.artifacts.values()
    assert before.digest == after.digest


def test_times_of_llvm_passes_are_kept_where_they_are_asked_for(monkeypatch):
    monkeypatch.setenv("NUMBA_LLVM_PASS_TIMINGS", "1")
    compiled = hermetic("int64(int64)")(loop)
    told = str(compiled.get_metadata(compiled.signatures[0])["llvm_pass_timings"])
    assert "Finalize object" in told
    assert "full optimization" in told
    monkeypatch.delenv("NUMBA_LLVM_PASS_TIMINGS")
    config.reload_config()
