"""What can go wrong when measuring; knows nothing of how it is done."""

from __future__ import annotations

from alloccheck.errors import AllocCheckException


class OracleError(AllocCheckException):
    """A call could not be measured; nothing was learnt about it."""


class OracleUnavailable(OracleError):
    """The machine cannot measure: no compiler, no glibc, or no safe place for the interposer."""


class WorkerCrashed(OracleError):
    """The measuring process died during the call.

    Parameters
    ----------
    message : str
        What happened and what was being measured.
    returncode : int
        As in `subprocess`: negative for a signal.
    output : str
        The end of what the process wrote on its standard error.
    """

    def __init__(self, message: str, returncode: int, output: str) -> None:
        super().__init__(f"{message}\n{output}" if output else message)
        self.returncode = returncode
        self.output = output


class WorkerTimeout(OracleError):
    """The call did not end in time; its process was ended."""


class RemoteError(OracleError):
    """The measuring process refused: the function does not compile, resolve or fit there.

    Parameters
    ----------
    message : str
        The other process's words.
    kind : str
        Name of the exception there.
    trace : str
        Its traceback.
    """

    def __init__(self, message: str, kind: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.trace = trace
