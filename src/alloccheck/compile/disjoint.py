"""Arrays that may not overlap: checked once, when the function is entered, and relied on after.

``out[a:b] = x[c:d]`` copies `x` first when the two overlap, and the copy allocates. Whether they do
is decided while the function runs, so no proof can leave the copy out. A pipeline made here lowers
the function with a guard at its entry, which raises when two of the named arguments overlap, and
without copies in assignments from one of them to another. What the values are is the guard's
business; that nothing is allocated does not depend on it.

The lowering itself is in `disjoint_lowering`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.errors import Refused, UsageError

# isort: split
from numba.core.compiler import Compiler

ALL = "*"
"""Stands for every argument that is an array."""


def disjoint_pipeline(base: Any, names: tuple[str, ...]) -> Any:
    """Return a compiler pipeline that relies on arguments not to overlap.

    Parameters
    ----------
    base : type or None
        The pipeline to start from; Numba's own when None.
    names : tuple of str
        Parameters, or `ALL`.

    Returns
    -------
    type
        The same one for the same question: hermetic results are kept by it.

    Examples
    --------
    >>> one = disjoint_pipeline(None, ("out", "x"))
    >>> one is disjoint_pipeline(None, ("out", "x")), disjoint_names(one)
    (True, ('out', 'x'))
    """
    return _pipeline(base or Compiler, names)


@functools.cache
def _pipeline(base: Any, names: tuple[str, ...]) -> Any:
    class DisjointCompiler(base):  # type: ignore[misc]
        alloccheck_disjoint = names
        alloccheck_base = base

        def define_pipelines(self) -> Any:
            from numba.core.typed_passes import NativeLowering

            from alloccheck.compile.disjoint_lowering import DisjointLowering

            managers = super().define_pipelines()
            for manager in managers:
                for place, (one, text) in enumerate(manager.passes):
                    if one is NativeLowering:
                        manager.passes[place] = (DisjointLowering, text)
            if not any(one is DisjointLowering for m in managers for one, _ in m.passes):
                raise Refused(
                    "disjoint= replaces the step that makes code of typed functions, and there "
                    "is none in this pipeline (parallel=True has another): leave one of them out"
                )
            return managers

    return DisjointCompiler


def disjoint_names(pipeline: Any) -> tuple[str, ...]:
    """Return the parameters that a pipeline relies on not to overlap; empty for other pipelines.

    Parameters
    ----------
    pipeline : type or None
        A compiler pipeline.
    """
    return tuple(getattr(pipeline, "alloccheck_disjoint", ()))


def base_pipeline(pipeline: Any) -> Any:
    """Return the pipeline that a disjoint one was made from, or any other as it is."""
    return getattr(pipeline, "alloccheck_base", pipeline)


def condition(pipeline: Any) -> str | None:
    """Return the sentence for what a pipeline's code checks when it is entered, if anything.

    Examples
    --------
    >>> condition(disjoint_pipeline(None, ("out", "x")))
    'the arrays out, x do not overlap (ValueError if they do)'
    """
    names = disjoint_names(pipeline)
    if not names:
        return None
    which = "array arguments" if names == (ALL,) else f"arrays {', '.join(names)}"
    return f"the {which} do not overlap (ValueError if they do)"


def parameters_named(disjoint: bool | str | Iterable[str], parameters: Iterable[str]) -> Any:
    """Return the parameters that a user named, in the order of the signature.

    Parameters
    ----------
    disjoint : bool, str or iterable of str
        True for every array among the arguments; or names.
    parameters : iterable of str
        The function's own.

    Raises
    ------
    UsageError
        For a name that is not a parameter, or fewer than two names.

    Examples
    --------
    >>> parameters_named(["x", "out"], ["out", "x", "gain"])
    ('out', 'x')
    >>> parameters_named(["out", "y"], ["out", "x"])
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: disjoint names 'y', which is not a parameter; they are out, x
    """
    if disjoint is False or disjoint is None:
        return ()
    if disjoint is True:
        return (ALL,)
    if isinstance(disjoint, str) or not isinstance(disjoint, Iterable):
        raise UsageError(
            f"disjoint must be True or the names of at least two parameters, found {disjoint!r}"
        )
    named, own = list(disjoint), list(parameters)
    for one in named:
        if one not in own:
            raise UsageError(
                f"disjoint names {one!r}, which is not a parameter; they are {', '.join(own)}"
            )
    if len(set(named)) < 2:
        raise UsageError("disjoint must name at least two parameters: one cannot overlap alone")
    return tuple(one for one in own if one in named)
