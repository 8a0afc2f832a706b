"""Our exceptions. Each message says what was expected, what was found, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alloccheck.findings import Report
    from alloccheck.verification import Verification


class AllocCheckException(Exception):
    """Base of everything that this package raises on purpose."""


class AllocCheckError(AllocCheckException):
    """A guarantee could not be proved; carries the report.

    Parameters
    ----------
    report : Report
        The verdict with its findings; the exception's text is its rendering.
    text : str
        The rendered report.
    """

    def __init__(self, report: Report, text: str) -> None:
        super().__init__(text)
        self.report = report


class VerificationError(AllocCheckException):
    """What would run is no longer what was proved; carries the verification.

    Parameters
    ----------
    verification : Verification
        What changed; the exception's text is its rendering.
    """

    def __init__(self, verification: Verification) -> None:
        super().__init__(str(verification))
        self.verification = verification


class ProofRefuted(AllocCheckException):
    """Running a proved function did what was proved impossible: a bug in this package.

    Parameters
    ----------
    report : Report
        The refuted proof.
    text : str
        What was seen, and on which input.
    """

    def __init__(self, report: Report, text: str) -> None:
        super().__init__(text)
        self.report = report


class UsageError(AllocCheckException):
    """The question itself is wrong: signature, options, target, configuration."""


class CompileError(AllocCheckException):
    """The user's function does not compile; Numba's own message is inside."""


class Refused(AllocCheckException):
    """The function uses something that cannot be proved or bound, named in the message."""


class InterpreterRefused(Refused):
    """Part of the function runs in the interpreter: it allocates and takes the GIL, by design."""


class ProgramError(AllocCheckException):
    """IR or machine code that a reader does not understand: nothing was decided."""


class ContractError(AllocCheckException):
    """A malformed contract table."""


class Unstorable(AllocCheckException):
    """A proved artifact that cannot be kept for other processes; the message says why.

    Raised and caught inside: the function is proved and runs all the same.
    """


def unexpected(error: BaseException) -> str:
    """Say what an exception means that this package did not raise on purpose.

    Parameters
    ----------
    error : BaseException
        Anything that ended a question.

    Examples
    --------
    >>> unexpected(MemoryError())
    'there is not enough memory'
    >>> unexpected(ValueError("odd"))
    'internal error, please report it: ValueError: odd'
    """
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    return f"internal error, please report it: {type(error).__name__}: {error}"
