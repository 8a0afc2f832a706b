"""What the helper process imports: makes the very artifact that a report speaks of.

Runs in the measuring process, called by name through `alloccheck.oracle.made_by`.
"""

from __future__ import annotations

from typing import Any

from alloccheck.oracle.references import FunctionReference, resolve

_made: dict[tuple[Any, ...], Any] = {}


def checked(
    module: str | None,
    qualname: str,
    path: str | None,
    signature: str | None,
    guarantee: str,
    ignore_throw: bool,
    first_call: str,
    entry: str,
    options: tuple[tuple[str, Any], ...],
) -> Any:
    """Return a dispatcher that runs a function's checked artifact, proved or not.

    Parameters
    ----------
    module, qualname, path
        See :class:`alloccheck.oracle.FunctionReference`.
    signature : str or None
        Numba's signature string; None: compile for the arguments of the call.
    guarantee, ignore_throw, first_call, entry
        What was asked; see :class:`alloccheck.policy.Policy`.
    options : tuple of (str, object)
        Numba's options.
    """
    from alloccheck.compile.target import python_function
    from alloccheck.decorators import check_allocs
    from alloccheck.dispatcher import CheckedDispatcher, deferred_proofs

    asked = (module, qualname, path, signature, guarantee, ignore_throw, first_call, entry, options)
    if asked in _made:
        return _made[asked]
    with deferred_proofs():
        target = resolve(FunctionReference(module, qualname, path))
    given: dict[str, Any] = {
        name: set(value) if isinstance(value, tuple) else value for name, value in options
    }
    if isinstance(target, CheckedDispatcher):
        # Its own options, and a policy that lets it run whatever the verdict.
        given = {**target.targetoptions, **given}
        given.pop("nopython", None)
        target = target.py_func
    elif not hasattr(target, "py_func"):
        target = python_function(target)
    decorate = check_allocs(
        *(() if signature is None else (signature,)),
        on_failure="report",
        guarantee=guarantee,
        ignore_throw=ignore_throw,
        first_call=first_call,
        entry=entry,
        **given,
    )
    made = decorate(target)
    _made[asked] = made
    return made
