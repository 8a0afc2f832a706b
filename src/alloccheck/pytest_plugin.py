"""Fixtures for pytest: count what compiled functions do, and hold proofs against it.

Loaded by pytest through the entry point ``alloccheck``. Knows the oracle's public face and the
one question of the checker that it asks; nothing of how either works. Nothing heavy is imported
until a test uses a fixture. Under pytest-xdist every worker has an oracle of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest

if TYPE_CHECKING:
    from alloccheck.findings import Report
    from alloccheck.oracle import Counts, Oracle

_REQUIRE = "alloccheck_require_oracle"


class AssertProved(Protocol):
    """What the fixture `assert_proved` is; see the function of that name."""

    def __call__(
        self,
        function: Any,
        *arguments: Any,
        calls: int = 3,
        first_call: bool | None = None,
        fresh: bool = False,
        other_threads: bool = False,
    ) -> tuple[Report, Counts]:
        """Check statically, measure, and return both results."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that turns skips of a machine without oracle into failures."""
    parser.addini(
        _REQUIRE,
        "Fail, instead of skip, tests that need the oracle where it is not available",
        type="bool",
        default=False,
    )


@pytest.fixture(scope="session")
def alloccheck_oracle(pytestconfig: pytest.Config) -> Iterator[Oracle]:
    """Give the session's measuring process; skip where this machine cannot measure."""
    from alloccheck.oracle import Oracle, OracleUnavailable

    with Oracle() as oracle:
        try:
            oracle.start()
        except OracleUnavailable as reason:
            _do_without(pytestconfig, reason)
        yield oracle


def _do_without(config: pytest.Config, reason: Exception) -> NoReturn:
    """Skip, or fail where the project demands the oracle."""
    if config.getini(_REQUIRE):
        pytest.fail(f"{_REQUIRE} is set: {reason}", pytrace=False)
    pytest.skip(str(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Treat a fixture that measures like the fixtures here."""
    return (yield from _without_errors_of_the_machine(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Treat a test that measures by plain functions like one that uses the fixtures."""
    return (yield from _without_errors_of_the_machine(item))


def _without_errors_of_the_machine(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        # Without that module nobody has asked the oracle.
        errors = sys.modules.get("alloccheck.oracle.errors")
        if errors is None or not isinstance(error, errors.OracleUnavailable):
            raise
        reason = error
    _do_without(item.config, reason)


@pytest.fixture
def alloc_counter(alloccheck_oracle: Oracle) -> Callable[..., Counts]:
    """Give `Oracle.count`: ``alloc_counter(gain, out, x).allocations == 0``."""
    return alloccheck_oracle.count


@pytest.fixture(name="assert_proved")
def _assert_proved(alloccheck_oracle: Oracle) -> AssertProved:
    """Give `assert_proved` with the session's oracle."""

    def check(function: Any, *arguments: Any, **options: Any) -> tuple[Report, Counts]:
        __tracebackhide__ = True
        return assert_proved(function, *arguments, oracle=alloccheck_oracle, **options)

    return check


def assert_proved(
    function: Any,
    *arguments: Any,
    calls: int = 3,
    first_call: bool | None = None,
    fresh: bool = False,
    other_threads: bool = False,
    oracle: Oracle | None = None,
    check: Callable[..., Report] | None = None,
) -> tuple[Report, Counts]:
    """Demand a proof, and that measuring the function does not refute it.

    Parameters
    ----------
    function : dispatcher
        A checked function or any other that ``alloccheck.check_call`` takes.
    *arguments : object
        What to check and call it with.
    calls : int
        How often to call it.
    first_call : bool, optional
        Whether the first call must keep the guarantee too. By default it must when the machine
        code is a checked artifact, which was prepared when it was admitted.
    fresh : bool
        Make the arguments anew for each call.
    other_threads : bool
        Whether other threads must keep the guarantee meanwhile: for parallel functions.
    oracle : Oracle, optional
        Instead of the process's shared one.
    check : callable, optional
        Instead of ``alloccheck.check_call``: takes the function and arguments, gives a report.

    Returns
    -------
    tuple of Report and Counts
        For further assertions.

    Raises
    ------
    AssertionError
        When there is no proof, when something was counted that the guarantee forbids, when a call
        raised (then nothing was measured that the proof speaks of), or when the measured machine
        code is not the certified one.
    OracleUnavailable
        When this machine cannot measure. Under pytest the test is then skipped, or fails where the
        project sets ``alloccheck_require_oracle``.
    """
    __tracebackhide__ = True
    from alloccheck.oracle import default_oracle

    if check is None:
        check = _static_check()
    report = check(function, *arguments)
    if not report.ok:
        raise AssertionError(f"{report.function}: not proved {report.guarantee}\n{report}")
    counts = (oracle or default_oracle()).count(function, *arguments, calls=calls, fresh=fresh)
    raised = [c.exception for c in counts.calls if c.outcome == "raised"]
    if raised:
        raise AssertionError(
            f"{counts.function} raised {raised[0]}: the proof could not be tested on these "
            "arguments. Pass some for which it returns."
        )
    certified = getattr(report.certificate, "digest", None)
    if counts.digest is not None and certified is not None and counts.digest != certified:
        raise AssertionError(
            f"{counts.function}: measured machine code {counts.digest}, certified {certified}. "
            "The two processes compile different programs; compare their configuration."
        )
    demanded = counts.artifact if first_call is None else first_call
    found = counts.refutations(report.guarantee, first_call=demanded, other_threads=other_threads)
    if found:
        raise AssertionError(
            f"{counts.function} {counts.signature}: proved {report.guarantee}, refuted by "
            "measurement\n  " + "\n  ".join(found) + "\nThis is a bug in alloccheck; please "
            "report it with the function."
        )
    return report, counts


def _static_check() -> Callable[..., Report]:
    # Looked up at run time: the plugin must load where only the oracle is wanted.
    check: Callable[..., Report] = importlib.import_module("alloccheck").check_call
    return check
