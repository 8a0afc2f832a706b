"""One pipeline: under every setting the code that is checked is the code that runs.

A cell is a process-wide setting or an option. In each, this process proves and runs the function,
and the oracle's process, started under the same setting, compiles and measures it on its own.
"""

import inspect
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from numba import njit, typeof
from numba.core import codegen, config

import parity_subjects
from alloccheck import Refused, check_allocs
from alloccheck.compile.job import Configuration
from alloccheck.oracle import Oracle, made_by

SIGNATURE = "float64(float64[::1], float64[::1], float64)"

SETTINGS = {
    "default": {},
    "OPT=0": {"NUMBA_OPT": "0"},
    "OPT=1": {"NUMBA_OPT": "1"},
    "OPT=2": {"NUMBA_OPT": "2"},
    "OPT=max": {"NUMBA_OPT": "max"},
    "BOUNDSCHECK=1": {"NUMBA_BOUNDSCHECK": "1"},
    "CPU_NAME=generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "LOOP_VECTORIZE=0": {"NUMBA_LOOP_VECTORIZE": "0"},
    "SLP_VECTORIZE=1": {"NUMBA_SLP_VECTORIZE": "1"},
    "LLVM_REFPRUNE_PASS=0": {"NUMBA_LLVM_REFPRUNE_PASS": "0"},
    "DEBUGINFO=1": {"NUMBA_DEBUGINFO": "1"},
    "EXTEND_VARIABLE_LIFETIMES=1": {"NUMBA_EXTEND_VARIABLE_LIFETIMES": "1"},
    "JIT_COVERAGE=1": {"NUMBA_JIT_COVERAGE": "1"},
}
OTHER_CODE = {"OPT=0", "BOUNDSCHECK=1", "CPU_NAME=generic"}
"""Settings under which this function surely has other machine code."""


@pytest.fixture
def under(monkeypatch):
    """Set Numba's environment, and put everything back at the end."""

    def set_all(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        config.reload_config()

    yield set_all
    monkeypatch.undo()
    config.reload_config()


def arguments(n=37):
    x = np.arange(1.0, n + 1)
    return np.zeros(n), x, 2.0


def expected(x, g):
    return (g * x) @ (g * x) / g


def proved(function):
    function.compile(tuple(map(typeof, arguments())))
    (artifact,) = function.artifacts.values()
    (report,) = function.reports.values()
    return artifact, report


def check_behaviour(function, options, bounds_checked):
    out, x, g = arguments()
    assert function(out, x, g) == pytest.approx(expected(x, g), rel=1e-12)
    assert np.array_equal(out, g * x)
    if options == "numpy errors":
        assert function(out, x, 0.0) != function(out, x, 0.0)  # 0/0 is not a number
    else:
        with pytest.raises(ZeroDivisionError):
            function(out, x, 0.0)
    assert raises_out_of_bounds(function) == bounds_checked


def raises_out_of_bounds(function):
    _, x, g = arguments()
    try:
        function(np.zeros(x.size)[:3], x, g)  # what is written beyond the view is still ours
    except IndexError:
        return True
    return False


def agree(name, options, environment, bounds_checked):
    function = parity_subjects.made(options)
    artifact, report = proved(function)
    assert report.certificate.digest == artifact.digest
    assert artifact.configuration == Configuration.current()
    check_behaviour(function, options, bounds_checked)
    assert function.verify().ok
    with Oracle(environment=environment) as oracle:
        counts = oracle.count(made_by(parity_subjects.made, options), *arguments())
    # The oracle's process started under the setting, this one switched to it.
    assert counts.digest == artifact.digest
    assert counts.allocations == 0
    # Nothing here allocates under any setting; to see that, reference counts must be pruned.
    assert report.ok or name in ("OPT=0", "LLVM_REFPRUNE_PASS=0")
    return artifact.digest


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name, under):
    before = proved(parity_subjects.made("plain"))[0].digest
    under(SETTINGS[name])
    digest = agree(name, "plain", SETTINGS[name], name == "BOUNDSCHECK=1")
    if name in OTHER_CODE:
        assert digest != before
    if name == "default":
        assert digest == before


@pytest.mark.parametrize("options", [one for one in parity_subjects.OPTIONS if one != "plain"])
def test_options(options):
    before = proved(parity_subjects.made("plain"))[0].digest
    digest = agree(options, options, {}, options == "bounds checked")
    if options != "debug":
        assert digest != before


def test_settings_leave_no_trace(under, monkeypatch):
    before = proved(parity_subjects.made("plain"))[0]
    with monkeypatch.context() as inner:
        inner.setenv("NUMBA_OPT", "0")
        between = proved(parity_subjects.made("plain"))[0]
    after = proved(parity_subjects.made("plain"))[0]
    assert after.digest == before.digest != between.digest
    assert after.configuration == before.configuration != between.configuration


# --- an artifact answers only for the settings that it was proved under ---------------------------


def test_a_changed_setting_refuses_the_old_artifact_and_names_itself(under):
    function = check_allocs(parity_subjects.scale)
    function(*arguments())
    (first,) = function.artifacts.values()
    under({"NUMBA_BOUNDSCHECK": "1"})
    signature = next(iter(function.artifacts))
    with pytest.raises(Refused, match=r"BOUNDSCHECK was 'None' and is '1' now.*recompile\(\)"):
        function.compile(signature)
    assert [(one.kind, one.subject) for one in function.verify().faults] == [
        ("setting", "BOUNDSCHECK")
    ]

    @njit
    def caller(out, x, g):
        return function(out, x, g)

    with pytest.raises(Exception, match="BOUNDSCHECK"):
        caller(*arguments())
    # What was proved still runs: it is what it was.
    out, x, g = arguments()
    assert function(out, x, g) == pytest.approx(expected(x, g))
    function.recompile()
    (second,) = function.artifacts.values()
    assert second.digest != first.digest
    assert function.verify().ok
    assert raises_out_of_bounds(function)


def test_recompile_keeps_declared_signatures_and_return_types(under):
    @check_allocs("int32(int64)")
    def narrow(n):
        return n

    assert narrow(2**32 + 5) == 5
    under({"NUMBA_OPT": "1"})
    narrow.recompile()
    assert narrow(2**32 + 5) == 5
    assert narrow.verify().ok
    with pytest.raises(TypeError):
        narrow("no other signature")


def test_a_setting_made_in_python_counts_as_well(monkeypatch):
    function = check_allocs(parity_subjects.scale)
    function(*arguments())
    monkeypatch.setattr(config, "SLP_VECTORIZE", 1)
    with pytest.raises(Refused, match="SLP_VECTORIZE"):
        function.compile(next(iter(function.artifacts)))


def test_switched_off_jit_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    with pytest.raises(Refused, match=r"NUMBA_DISABLE_JIT is set.*\.py_func"):
        check_allocs(parity_subjects.scale)


def test_the_settings_that_are_compared_cover_those_that_code_generation_reads():
    source = inspect.getsource(codegen)
    named = set(re.findall(r"\bconfig\.([A-Z_]+)", source))
    known = {name for name, _ in Configuration.current().settings}
    # What is printed, and where code lies in memory.
    harmless = {"HIGHLIGHT_DUMPS", "USE_LLVMLITE_MEMORY_MANAGER"}
    harmless |= {one for one in named if one.startswith("DUMP_")}
    assert "OPT" in named
    assert named - harmless <= known


DIGESTS = """
import sys
import numpy as np
from numba import njit
from alloccheck import hermetic

TABLE = np.arange(5.0)

def raising(n):
    if n < 0:
        raise ValueError("negative", n)
    return TABLE[n]

def text(n):
    return ("abc" if n else "def") + str(n)

def table(n):
    found = {}
    for i in range(n):
        found[i] = str(i)
    return len(found)

def drawn(n):
    return np.random.random() + np.sin(n)

@njit
def parts(x, n):
    for i in range(0, x.size, n):
        for j in range(n):
            yield x[i:i + n], x[j] * n

def yielded(n):
    total = 0.0
    for part, weight in parts(TABLE, n):
        total += part.sum() * weight
    return total

made = [raising, text, table, drawn, yielded]
if sys.argv[1] == "later":
    # Other compiles before, in another order: counters, labels and addresses differ.
    for one in made:
        hermetic("(int32,)")(one)
    made.reverse()
digests = {one.__name__: hermetic("(int64,)")(one) for one in made}
for name, one in sorted(digests.items()):
    print(name, *(a.digest for a in one.artifacts.values()))
"""


@pytest.mark.parametrize("level", ["0", "3"])
def test_digests_are_those_of_every_process(level):
    printed = set()
    for when, seed in (("first", "1"), ("later", "2")):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONHASHSEED": seed,
            "NUMBA_OPT": level,
        }
        printed.add(
            subprocess.run(
                [sys.executable, "-c", DIGESTS, when],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    (only,) = printed
    assert len(only.splitlines()) == 5
