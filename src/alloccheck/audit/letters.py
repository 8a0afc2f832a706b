"""Tells a copy of this process of a function that was compiled after the copy was made.

The copy has the function, too, if it was defined before: modules are imported, as a rule, before
the first compile. It is named by its address. Whether both processes mean the same is seen by a
digest of the whole question (`compile/kin.py`), which an answer carries and which its reader
compares with its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from alloccheck.audit.judge import job_of

if TYPE_CHECKING:
    from alloccheck.compile.recording import Compiled

_LONGEST = 1 << 16


class Letters:
    """Writes and reads letters about what Numba compiled.

    An object is used by the process that writes, and, copied with it, by those that read.
    """

    def __init__(self) -> None:
        self._relatives: Mapping[int, Any] = {}

    def open(self) -> None:
        """Look for what letters may be about: to be called first in a process that will read."""
        from alloccheck.compile.kin import living

        self._relatives = living()

    def write(self, one: Compiled) -> bytes | None:
        """Return a letter about a record; None when there is no way to tell of it.

        Parameters
        ----------
        one : Compiled
            The record.
        """
        from alloccheck.compile.kin import told

        try:
            # What was captured is compared here, when the answer is there.
            letter = told(dataclasses.replace(one, frozen=None))
        except Exception:
            # A type of the program's own may hold anything.
            return None
        return letter if len(letter) <= _LONGEST else None

    def read(self, letter: bytes) -> Compiled | None:
        """Return the record that a letter is about; None when this process does not have it.

        Parameters
        ----------
        letter : bytes
            From `write`, in the process that this one was forked from.
        """
        from alloccheck.compile.kin import understood

        try:
            found: Compiled = understood(letter, self._relatives)
        except Exception:
            return None
        return found

    def question(self, one: Compiled) -> str | None:
        """Return a digest of what is asked about a record; None when it cannot be asked.

        Parameters
        ----------
        one : Compiled
            The record.
        """
        from alloccheck.compile.job import Configuration
        from alloccheck.compile.kin import KinIdentity
        from alloccheck.compile.question import key_of

        try:
            return key_of(job_of(one), Configuration.current(), "", KinIdentity())
        except Exception:
            # Objects of the program's, such as proxies, may raise anything when looked at.
            return None
