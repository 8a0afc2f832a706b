"""What a compile was made of, each with a key that tells whether it was changed since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from alloccheck.compile.captures import (
    MISSING,
    class_fingerprint,
    fingerprint,
    function_fingerprint,
)
from alloccheck.compile.content import Content
from alloccheck.compile.frozen import running_key

# isort: split
from numba.core.types import ClassType


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """Something of the user's that code was made of.

    Parameters
    ----------
    of : object
        A Python function, the type of a jitclass, an object or a module.
    kind : {"compiled", "running", "constant", "attribute"}
        Whether it is the thing itself; a function that runs while Numba compiles; an object whose
        content an extension of Numba's may look at; or what a module has under a name.
    name : str
        Of the module's attribute.
    """

    of: Any
    kind: Literal["compiled", "running", "constant", "attribute"] = "compiled"
    name: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it apart from others, as long as it is kept."""
        return (id(self.of), self.kind, self.name)

    def fingerprint(self) -> Any:
        """Return a key that changes when Numba would make something else of it."""
        if self.kind == "running":
            return running_key(self.of)
        if self.kind == "constant":
            return Content().key(self.of)
        if self.kind == "attribute":
            return fingerprint(vars(self.of).get(self.name, MISSING))
        if isinstance(self.of, ClassType):
            return class_fingerprint(self.of)
        return function_fingerprint(self.of)
