"""The command line: what it finds, what it says, and how it ends.

A stand-in for the road decides by a function's name, so that these tests are about faces alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from alloccheck.analysis.summary import Witness
from alloccheck.cli import COMMANDS, main
from alloccheck.cli.discover import split_target
from alloccheck.cli.road import Road, default_road
from alloccheck.cli.terminal import use_color
from alloccheck.effects import Effect, Guarantee, Occasion, Path
from alloccheck.errors import AllocCheckError, CompileError, UsageError
from alloccheck.findings import Report, findings_from
from alloccheck.source import Frame
from test_report import SCHEMA, violations

WORDS = ModuleType("standin")
"""What the users' modules in these tests import: decorators that record what they were given."""


class Decorated:
    def __init__(self, py_func: Any, signatures: tuple[str, ...], guarantee: Guarantee) -> None:
        self.py_func = py_func
        self.declared_signatures = signatures
        self.guarantee = guarantee
        self.ignore_throw = True
        self.reports: dict[Any, Report] = {}


class Prover:
    """The stand-in road: remembers the questions, and the functions' names tell the answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []
        self.is_deferred = False

    def analyze(self, function: Any, signature: Any, **options: Any) -> Report:
        py_func = getattr(function, "py_func", function)
        name = py_func.__name__
        self.asked.append((name, signature, options))
        print("noise from the compiler")
        if name.startswith("typing_error"):
            raise CompileError("cannot infer the type of 'x'")
        if name.startswith("crash"):
            raise ZeroDivisionError("by nought")
        if signature == "nonsense":
            raise UsageError("'nonsense' is no signature; expected e.g. 'void(float64)'")
        code = py_func.__code__
        last = max(line for _, _, line in code.co_lines() if line is not None)
        frame = Frame(code.co_filename, last, None, name)
        witness = Witness(
            Effect.ALLOCATE,
            Path.RAISE if name.startswith("raising") else Path.RETURN,
            Occasion.EVERY_CALL,
            "malloc",
            "takes memory",
            "libc",
            (frame,),
        )
        found = findings_from(
            [] if name.startswith("clean") else [witness],
            guarantee=options["guarantee"],
            ignore_throw=options["ignore_throw"],
            first_call=options["first_call"],
        )
        report = Report(
            f"{py_func.__module__}:{py_func.__qualname__}",
            code.co_filename,
            code.co_firstlineno,
            str(signature),
            options["guarantee"],
            options["ignore_throw"],
            found,
            frozenset({Effect.ALLOCATE} if found else ()),
        )
        if name.startswith("thrown"):
            raise AllocCheckError(report, "text")
        return report

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        self.is_deferred = True
        try:
            yield
        finally:
            self.is_deferred = False

    @property
    def road(self) -> Road:
        return Road(self.analyze, Decorated, self.deferred, "{}.{}".format)

    def decorator(self, *signatures: str, guarantee: str = "nonallocating") -> Any:
        def wrap(function: Any) -> Decorated:
            if signatures and not self.is_deferred:
                raise AssertionError("proved while the module was imported")
            return Decorated(function, signatures, Guarantee(guarantee))

        return wrap


@pytest.fixture
def prover(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prover]:
    prover = Prover()
    WORDS.__dict__["checked"] = prover.decorator
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "standin", WORDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield prover
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        path = [*getattr(sys.modules[name], "__path__", [])]
        if str(tmp_path) in file or any(str(tmp_path) in one for one in path):
            del sys.modules[name]


@pytest.fixture
def check(prover: Prover):
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["check", *arguments], obj=prover.road)

    return run


def write(name: str, text: str) -> FilePath:
    file = FilePath.cwd() / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("from standin import checked\n" + text, encoding="utf-8")
    return file


def function(name: str, *signatures: str, more: str = "") -> str:
    given = ", ".join(map(repr, signatures))
    return f"@checked({given}{more})\ndef {name}(x):\n    return x + 1\n\n"


# --- exit codes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (function("clean", "f8(f8)"), 0),
        (function("dirty", "f8(f8)"), 1),
        (function("clean", "f8(f8)") + function("dirty", "f8(f8)"), 1),
        (function("typing_error", "f8(f8)"), 2),
        (function("dirty", "f8(f8)") + function("typing_error", "f8(f8)"), 2),
        (function("clean", "nonsense"), 2),
        (function("crash", "f8(f8)"), 2),
        (function("thrown", "f8(f8)"), 1),
        (function("clean"), 2),
        ("", 2),
        (function("clean", "f8(f8)") + function("clean_lazy"), 0),
    ],
)
def test_exit_codes(check, source: str, code: int):
    write("user.py", source)
    result = check("user.py")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output


def test_ctrl_c_is_no_finding(check, prover: Prover, monkeypatch: pytest.MonkeyPatch):
    write("one.py", function("clean", "f8(f8)"))

    def pressed(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prover, "analyze", pressed)
    result = check("one.py")
    assert result.exit_code == 2
    assert result.stderr == "interrupted: nothing was decided\n"
    assert result.stdout == ""


def test_strict_refuses_functions_without_signature(check):
    write("user.py", function("clean", "f8(f8)") + function("clean_lazy"))
    result = check("user.py", "--strict")
    assert result.exit_code == 2
    assert "user:clean_lazy" in result.stdout
    assert "no signature" in result.stdout


def test_no_target_is_misuse(check):
    result = check()
    assert result.exit_code == 2
    assert "no target given" in result.stderr


# --- targets ---------------------------------------------------------------------------------


def names(prover: Prover) -> list[str]:
    return [name for name, _, _ in prover.asked]


def test_functions_come_in_the_order_of_their_lines_and_once(check, prover: Prover):
    write(
        "user.py",
        function("clean_b", "f8(f8)", "i8(i8)")
        + function("clean_a", "f8(f8)")
        + "again = clean_b\n",
    )
    check("user.py", "user.py:clean_a", "user")
    assert [(name, signature) for name, signature, _ in prover.asked] == [
        ("clean_b", "f8(f8)"),
        ("clean_b", "i8(i8)"),
        ("clean_a", "f8(f8)"),
    ]


def test_directory_is_searched_in_order_without_hidden_places(check, prover: Prover):
    write("src/b.py", function("clean_b", "f8(f8)"))
    write("src/a.py", function("clean_a", "f8(f8)"))
    write("src/pkg/__init__.py", "")
    write("src/pkg/inner.py", "from . import other\n" + function("clean_inner", "f8(f8)"))
    write("src/pkg/other.py", function("clean_other", "f8(f8)"))
    write("src/.hidden/c.py", function("dirty_hidden", "f8(f8)"))
    write("src/venv/pyvenv.cfg", "")
    write("src/venv/d.py", function("dirty_venv", "f8(f8)"))
    write("src/pkg/__main__.py", "raise SystemExit(3)\n")
    result = check("src")
    assert result.exit_code == 0, result.output
    assert names(prover) == ["clean_a", "clean_b", "clean_inner", "clean_other"]
    assert "pkg.inner:clean_inner" in result.stdout


def test_a_package_stands_for_its_modules(check, prover: Prover):
    write("robot/__init__.py", function("clean_top", "f8(f8)"))
    write("robot/arm.py", function("clean_arm", "f8(f8)"))
    write("robot/sub/__init__.py", "from robot.arm import clean_arm\n")
    write("robot/sub/leg.py", function("clean_leg", "f8(f8)"))
    FilePath("robot").rename("robot_one")  # a name that is no directory here
    os.mkdir("lib")
    FilePath("robot_one").rename("lib/robot")
    sys.path.insert(0, str(FilePath("lib").resolve()))
    try:
        result = check("robot")
    finally:
        sys.path.remove(str(FilePath("lib").resolve()))
    assert result.exit_code == 0, result.output
    assert names(prover) == ["clean_top", "clean_arm", "clean_leg"]


def test_module_of_the_current_directory_and_class_members(check, prover: Prover):
    write(
        "user.py",
        "class Filter:\n    @staticmethod\n    @checked('f8(f8)')\n    def clean(x):\n"
        "        return x\n" + function("dirty", "f8(f8)"),
    )
    assert check("user:Filter.clean").exit_code == 0
    assert check("user").exit_code == 1
    assert names(prover) == ["clean", "clean", "dirty"]


def test_two_files_of_one_name_are_two_modules(check, prover: Prover):
    write("one/same.py", function("clean_one", "f8(f8)"))
    write("two/same.py", function("clean_two", "f8(f8)"))
    assert check("one/same.py", "two/same.py").exit_code == 0
    assert names(prover) == ["clean_one", "clean_two"]


def test_signature_option_replaces_declared_ones_and_serves_undecorated_ones(check, prover):
    write("user.py", function("clean", "f8(f8)") + "def clean_plain(x):\n    return x\n")
    assert check("user.py:clean", "user:clean_plain", "--signature", "i4(i4)").exit_code == 0
    assert [(name, signature) for name, signature, _ in prover.asked] == [
        ("clean", "i4(i4)"),
        ("clean_plain", "i4(i4)"),
    ]


def test_signatures_proved_before_are_checked(check, prover: Prover):
    write("user.py", function("clean") + "clean.reports[('float64',)] = None\n")
    assert check("user.py").exit_code == 0
    assert prover.asked[0][1] == ("float64",)


def test_settings_give_signatures_guarantee_and_options(check, prover: Prover):
    write("user.py", "def clean(x):\n    return x\n" + function("clean_own", "f8(f8)"))
    FilePath("pyproject.toml").write_text(
        "[tool.alloccheck]\nguarantee = 'nonblocking'\nfirst_call = 'forbid'\n"
        "ignore_throw = false\njit = {fastmath = true}\n"
        "[tool.alloccheck.signatures]\n'user:clean' = ['f8(f8)']\n"
    )
    assert check().exit_code == 0
    assert prover.asked == [
        (
            "clean_own",
            "f8(f8)",
            {
                "guarantee": Guarantee.NONALLOCATING,
                "ignore_throw": True,
                "first_call": "forbid",
            },
        ),
        (
            "clean",
            "f8(f8)",
            {
                "guarantee": Guarantee.NONBLOCKING,
                "ignore_throw": False,
                "first_call": "forbid",
                "fastmath": True,
            },
        ),
    ]


def test_effects_and_ignore_throw_override_the_decorator(check, prover: Prover):
    write("user.py", function("raising", "f8(f8)", more=", guarantee='nonblocking'"))
    assert check("user.py").exit_code == 0
    assert check("user.py", "--no-ignore-throw", "--effects", "nonallocating").exit_code == 1
    assert [options["guarantee"] for _, _, options in prover.asked] == [
        Guarantee.NONBLOCKING,
        Guarantee.NONALLOCATING,
    ]
    assert [options["ignore_throw"] for _, _, options in prover.asked] == [True, False]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("a.py", ("a.py", None)),
        ("a.py:f", ("a.py", "f")),
        ("pkg.m:C.f", ("pkg.m", "C.f")),
        ("C:\\code\\a.py", ("C:\\code\\a.py", None)),
        (":f", (":f", None)),
    ],
)
def test_split_target(target, expected):
    assert split_target(target) == expected


# --- bad input -------------------------------------------------------------------------------


GOOD = (
    "number = 3\n"
    + function("clean", "f8(f8)")
    + function("clean_lazy")
    + "def plain(x):\n    return x\n"
)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.py", "no such file or directory: missing.py"),
        ("missing/", "no such file or directory: missing/"),
        ("missing_module", "no module named 'missing_module'"),
        ("user.nothing", "no module named 'user.nothing'"),
        ("good.py:claen", "good has no attribute 'claen'; did you mean 'clean'?"),
        ("good.py:number", "good:number is of type int; expected a Python function"),
        ("good.py:plain", "good:plain has no signature; give one by --signature"),
        ("good.py:clean_lazy", "good:clean_lazy has no signature; give one by --signature"),
        ("broken.py", "cannot import broken.py: NameError: name 'oops' is not defined (at "),
        ("syntax.py", "cannot import syntax.py: SyntaxError: "),
        ("exits.py", "cannot import exits.py: SystemExit: 3"),
        ("needs.py", "cannot import needs.py: No module named 'not_there'"),
        ("text.txt", "text.txt is not a Python source file"),
        ("..", "broken.py: cannot import"),
    ],
)
def test_bad_input_is_told_once_and_the_rest_is_still_checked(check, prover, target, words):
    write("project/good.py", GOOD)
    write("project/broken.py", "oops\n")
    write("project/syntax.py", "def f(:\n")
    write("project/exits.py", "raise SystemExit(3)\n")
    write("project/needs.py", "import not_there\n")
    write("project/text.txt", "")
    write("project/user.py", "")
    os.chdir("project")
    result = check(target, "good.py")
    assert result.exit_code == 2
    told = result.stderr.replace("../project/", "")
    assert told.count(words) == 1, result.stderr
    assert "Traceback" not in result.output
    assert "clean" in names(prover)
    assert "proved nonallocating" in result.stdout


def test_signature_without_a_named_function_is_misuse(check):
    write("user.py", function("clean", "f8(f8)"))
    result = check("user.py", "--signature", "f8(f8)")
    assert result.exit_code == 2
    assert "--signature needs a function to apply to" in result.stderr


def test_bad_settings_are_told(check):
    write("user.py", function("clean", "f8(f8)"))
    FilePath("pyproject.toml").write_text("[tool.alloccheck]\nstric = true\n")
    result = check("user.py")
    assert result.exit_code == 2
    assert "did you mean 'strict'?" in result.stderr


def test_settings_that_name_a_missing_function_are_told(check):
    write("user.py", function("clean", "f8(f8)"))
    FilePath("pyproject.toml").write_text(
        "[tool.alloccheck.signatures]\n'user:gone' = ['f8(f8)']\n"
    )
    result = check("user.py")
    assert result.exit_code == 2
    assert "user has no attribute 'gone'" in result.stderr
    assert "pyproject.toml" in result.stderr


def test_compile_error_and_crash_say_what_happened(check):
    write("user.py", function("typing_error", "f8(f8)") + function("crash", "f8(f8)"))
    result = check("user.py")
    assert "error: user:typing_error f8(f8): cannot infer the type of 'x'" in result.stderr
    assert "internal error, please report it: ZeroDivisionError: by nought" in result.stderr


def test_the_default_road_is_the_packages_own(monkeypatch: pytest.MonkeyPatch):
    check, dispatcher = ModuleType("alloccheck.check"), ModuleType("alloccheck.dispatcher")
    check.__dict__["analyze"] = len
    dispatcher.__dict__.update(CheckedDispatcher=Decorated, deferred_proofs=contextlib.nullcontext)
    job = ModuleType("alloccheck.compile.job")
    job.__dict__["method_signature"] = print
    monkeypatch.setitem(sys.modules, "alloccheck.check", check)
    monkeypatch.setitem(sys.modules, "alloccheck.compile.job", job)
    monkeypatch.setitem(sys.modules, "alloccheck.dispatcher", dispatcher)
    own = Road(len, Decorated, contextlib.nullcontext, print)  # type: ignore[arg-type]
    assert default_road() == own


# --- output ----------------------------------------------------------------------------------


def test_text_shows_findings_table_and_sum(check):
    file = write(
        "user.py", function("clean", "f8(f8)") + function("dirty", "f8(f8)") + function("lazy")
    )
    result = check("user.py")
    line = file.read_text().splitlines().index("def dirty(x):") + 2
    assert f"user.py:{line}:12: AC199 allocates memory on every call: x + 1" in result.stdout
    rows = [row.split() for row in result.stdout.splitlines()]
    assert ["function", "signature", "verdict", "findings", "time"] in rows
    assert ["user:clean", "f8(f8)", "proved", "0"] in [row[:4] for row in rows]
    assert ["user:dirty", "f8(f8)", "not", "proved", "1"] in [row[:5] for row in rows]
    assert ["user:lazy", "no", "signature"] in rows
    assert result.stdout.splitlines()[-1] == "1 proved, 1 not proved, 1 no signature"
    assert "noise from the compiler" not in result.stdout
    assert "\x1b[" not in result.stdout


def test_color_can_be_forced(check):
    write("user.py", function("dirty", "f8(f8)"))
    assert "\x1b[" in check("user.py", "--color", "always").stdout
    assert "\x1b[" not in check("user.py", "--color", "never").stdout


def test_json_is_alone_on_stdout_fits_the_schema_and_repeats(check):
    write(
        "user.py",
        "print('noise of the module')\n"
        + function("clean", "f8(f8)")
        + function("dirty", "f8(f8)")
        + function("crash", "f8(f8)")
        + function("lazy"),
    )
    first, second = (check("user.py", "--format", "json") for _ in range(2))
    assert first.exit_code == 2
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)
    assert violations(document, SCHEMA) == []
    assert document["exit_code"] == 2
    assert [one["function"] for one in document["reports"]] == ["user:clean", "user:dirty"]
    assert [one["target"] for one in document["problems"]] == ["user:crash f8(f8)"]
    assert document["without_signature"] == ["user:lazy"]


def test_import_path_is_restored(check):
    write("deep/user.py", function("clean", "f8(f8)"))
    before = list(sys.path)
    check("deep/user.py")
    assert sys.path == before


@pytest.mark.parametrize("redirect", [">/dev/full", "| true"])
def test_output_that_cannot_be_written_is_no_finding(redirect):
    command = f"{sys.executable} -m alloccheck store list"
    script = f"set -o pipefail; {{ sleep 0.5; {command}; }} {redirect}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_closed_output_leaves_the_verdict(tmp_path):
    (tmp_path / "user.py").write_text("def clean(x):\n    return x\n")
    command = f"{sys.executable} -m alloccheck check user.py:clean --signature 'f8(f8)'"
    script = f"cd {tmp_path}; {command} >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_of_our_own_is_no_finding(check, monkeypatch):
    def fail(_: FilePath) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("alloccheck.cli.check.load_config", fail)
    done = check("user.py")
    assert done.exit_code == 2
    assert done.stderr.startswith("internal error, please report it:\nTraceback")
    assert "ZeroDivisionError: by nought" in done.stderr


@pytest.mark.parametrize(
    ("choice", "terminal", "no_color", "colored"),
    [
        ("auto", True, None, True),
        ("auto", True, "", True),  # https://no-color.org: when present and not empty
        ("auto", True, "1", False),
        ("auto", False, None, False),
        ("always", False, "1", True),
        ("never", True, None, False),
    ],
)
def test_colors_are_for_terminals_that_want_them(choice, terminal, no_color, colored, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert use_color(choice, terminal=terminal) is colored
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert use_color(choice) is colored


def test_version_and_help_name_the_commands():
    runner = CliRunner()
    assert runner.invoke(main, ["--version"]).stdout.startswith("alloccheck, version ")
    overview = runner.invoke(main, ["--help"]).stdout
    assert all(command in overview for command in COMMANDS)
    assert "Exits with 0" in runner.invoke(main, ["check", "--help"]).stdout
    assert runner.invoke(main, ["chekc"]).exit_code == 2


def test_version_needs_no_numba():
    code = (
        "import sys\nfrom alloccheck.cli import main\n"
        "try:\n    main(['--version'])\nfinally:\n    assert 'numba' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "document"),
    [("audit", "audit"), ("check", "cli"), ("native", "cli"), ("order", "order")],
)
def test_the_page_on_the_command_names_every_option_and_exit_code(name, document):
    page = (FilePath(__file__).parents[1] / "docs" / f"{document}.md").read_text(encoding="utf-8")
    command = main.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert f"`{option}" in page, option
    assert all(f"| {code} |" in page for code in (0, 1, 2))


def test_too_little_memory_is_no_error_of_our_own(check, monkeypatch):
    def fail(_: FilePath) -> None:
        raise MemoryError

    monkeypatch.setattr("alloccheck.cli.check.load_config", fail)
    done = check("user.py")
    assert (done.exit_code, done.stderr) == (2, "error: there is not enough memory\n")
