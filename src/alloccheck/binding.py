"""What a checked function offers to C, and how it is compared with what was proved.

A part of :class:`alloccheck.dispatcher.CheckedDispatcher`; knows artifacts, nothing of compiling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from alloccheck import cforms
from alloccheck.compile.job import parse_signature
from alloccheck.compile.loaded import Artifact
from alloccheck.compile.status import UNKNOWN_STATUS
from alloccheck.errors import UsageError
from alloccheck.verification import Verification, verify


def _entry_address(field: str, meaning: str) -> property:
    """Return a property: the address of an entry from C, of the only artifact there is."""

    def address(self: Bound) -> int:
        artifact = self._only_artifact()
        found: int | None = getattr(artifact, field)
        if found is None:
            raise TypeError(f"{artifact.signature} has no C entry")
        # C says nothing of when it forgets an address.
        artifact.lifetime.keep("its address was given to C")
        return found

    address.__doc__ = f"""{meaning}

        The code lives as long as the process from now on.

        Raises
        ------
        TypeError
            With several signatures, or types that cannot be passed by value.
        """
    return property(address)


class Bound:
    """The C entries of a function's artifacts, and their verification."""

    _artifacts: dict[tuple[Any, ...], Artifact]
    __qualname__: str

    @property
    def artifacts(self) -> Mapping[tuple[Any, ...], Artifact]:
        """The artifact of each argument-type tuple that can be called."""
        return MappingProxyType(self._artifacts)

    address = _entry_address("c_address", "Address of the C entry ``ret f(args...)``.")
    status_address = _entry_address(
        "status_address",
        "Address of the C entry ``int32 f(ret*, args...)``, which returns 0 unless it raised.",
    )
    last_status_address = _entry_address(
        "last_status_address",
        "Address of ``int32 f(void)``: how the calling thread's last call by `address` ended.",
    )

    @property
    def ctypes(self) -> Any:
        """The entry at `address` as a ctypes function.

        SciPy's ``LowLevelCallable`` takes it as it is.

        Raises
        ------
        UsageError
            When a type has no C form.
        TypeError
            With several signatures.
        """
        return cforms.prototype(self._only_artifact().signature)(self.address)

    @property
    def status_ctypes(self) -> Any:
        """The entry at `status_address` as a ctypes function.

        Raises
        ------
        UsageError
            When a type has no C form.
        TypeError
            With several signatures.
        """
        made = cforms.prototype(self._only_artifact().signature, status=True)
        return made(self.status_address)

    def cffi(self, ffi: Any, *, status: bool = False) -> Any:
        """Return a C entry as a function pointer of a cffi instance.

        Parameters
        ----------
        ffi : cffi.FFI
            Whose pointer it shall be.
        status : bool
            Take the entry at `status_address` instead of the one at `address`.

        Raises
        ------
        UsageError
            When a type has no C form.
        TypeError
            With several signatures.
        """
        written = cforms.declaration(self._only_artifact().signature, status=status)
        return ffi.cast(written, self.status_address if status else self.address)

    def last_status(self) -> int:
        """Return how the calling thread's last call by `address` ended.

        Returns
        -------
        int
            0 when it returned; another number when it raised.

        Raises
        ------
        RuntimeError
            When more threads than there are slots raised at one time, so that nobody knows.
        TypeError
            With several signatures, or types that cannot be passed by value.
        """
        read = ctypes.CFUNCTYPE(ctypes.c_int32)(self.last_status_address)
        status = int(read())
        if status == UNKNOWN_STATUS:
            raise RuntimeError(
                f"the status of {self.__qualname__} on this thread is not known: more threads "
                "than the table has slots raised and did not call again"
            )
        return status

    def verify(self, signature: Any = None) -> Verification:
        """Compare what runs with what was proved: memory, bindings, captured values, settings.

        Parameters
        ----------
        signature : str, tuple of types, or numba signature, optional
            Which artifact; may be left out when there is exactly one.

        Returns
        -------
        Verification
            True in a condition when nothing changed; otherwise its `faults` name what did.

        Raises
        ------
        UsageError
            When there is no artifact of this signature.
        TypeError
            With several signatures and none given.

        Examples
        --------
        >>> from alloccheck import check_allocs
        >>> @check_allocs("float64(float64)")
        ... def half(x):
        ...     return 0.5 * x
        >>> bool(half.verify())
        True
        """
        return verify(self._artifact_of(signature))

    def _artifact_of(self, signature: Any) -> Artifact:
        if signature is None:
            return self._only_artifact()
        arguments, _ = parse_signature(signature)
        found = self._artifacts.get(tuple(arguments))
        if found is None:
            known = "; ".join(", ".join(map(str, one)) for one in self._artifacts) or "none"
            raise UsageError(
                f"{self.__qualname__} has no artifact for ({', '.join(map(str, arguments))}); "
                f"it has: {known}"
            )
        return found

    def _only_artifact(self) -> Artifact:
        if len(self._artifacts) != 1:
            raise TypeError(
                f"{self.__qualname__} has {len(self._artifacts)} compiled signatures; an address "
                "belongs to exactly one. Decorate it with one signature"
            )
        return next(iter(self._artifacts.values()))
