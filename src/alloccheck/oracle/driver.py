"""Compiles a small Numba function around a native entry: open the window, call it, close it.

Numba itself unboxes the arguments before the window opens and boxes the result, or raises, after
it has closed, so what is counted is the entry alone. Knows Numba's calling convention; nothing
of processes or of counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, imputils, sigutils, types
from numba.core.ccallback import CFunc
from numba.core.typing import signature as make_signature
from numba.core.typing.templates import fold_arguments
from numba.extending import intrinsic

from alloccheck.errors import UsageError
from alloccheck.oracle.native import Assembly, Form, can_box, is_pointer, points_into
from alloccheck.oracle.references import ONLY, refuse_ufunc

Convention = Literal["numba", "c"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The native code of one overload.

    Parameters
    ----------
    address : int
        Where it starts.
    convention : {"numba", "c"}
        ``int32 f(ret*, excinfo**, flattened arguments...)``, or ``ret f(arguments...)`` with
        Numba's value types, which cannot tell that it raised.
    restype : numba type
        What it returns.
    argtypes : tuple of numba types
        What it takes; omitted arguments included.
    symbols : tuple
        Pairs of address and name of the functions that came with it.
    artifact : bool
        Whether it is a checked artifact's.
    digest : str or None
        The artifact's digest.
    callback : bool
        Whether it is a ``cfunc``'s, which reports what it raises to ``sys.unraisablehook``.
    owner : object
        Keeps the machine code alive.
    """

    address: int
    convention: Convention
    restype: Any
    argtypes: tuple[Any, ...]
    symbols: tuple[tuple[int, str], ...]
    artifact: bool
    digest: str | None
    owner: Any
    callback: bool = False

    @property
    def signature(self) -> str:
        """Numba's form, ``ret(args...)``."""
        return str(make_signature(self.restype, *self.argtypes))


@dataclass(frozen=True, slots=True)
class Window:
    """Addresses of the two C functions without arguments that open and close the window."""

    open: int
    close: int


def fold(dispatcher: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values as the overload takes them: defaults marked, starred ones in a tuple.

    Raises
    ------
    UsageError
        When it is no dispatcher or callback, or the arguments do not fit its parameters.
    """
    refuse_ufunc(dispatcher)
    if isinstance(dispatcher, CFunc):
        return align(dispatcher._sig.args, arguments)
    if not all(hasattr(dispatcher, name) for name in ("py_func", "overloads", "compile")):
        raise UsageError(
            f"Expected a compiled function (a Numba dispatcher or cfunc), found {dispatcher!r}"
        )
    pysig = numba.core.utils.pysignature(dispatcher.py_func)
    try:
        return tuple(
            fold_arguments(
                pysig,
                tuple(arguments),
                {},
                lambda index, parameter, value: value,
                lambda index, parameter, default: types.Omitted(default),
                lambda index, parameter, values: tuple(values),
            )
        )
    except TypeError as error:
        raise UsageError(f"{dispatcher.py_func.__qualname__}{pysig}: {error}") from error


def entry_of(
    dispatcher: Any,
    values: Sequence[Any],
    signature: str | None = None,
    convention: Convention = "numba",
) -> Entry:
    """Compile the overload for folded values, if needed, and return its native entry.

    Parameters
    ----------
    dispatcher : Numba dispatcher
        A stock one, or one with a mapping ``artifacts`` from argument types to checked artifacts,
        each with ``address`` and ``fndesc`` (or ``result.fndesc``). A checked artifact is
        preferred: it is what runs.
    values : sequence
        From `fold`.
    signature : str, optional
        Use the overload for these argument types instead of those of the values; `ONLY`: the only
        one that there is.
    convention : {"numba", "c"}
        Which entry; only artifacts have one for C, at ``c_address``. A callback (``cfunc``) has no
        other.

    Raises
    ------
    UsageError
        When there is no such overload or entry.
    """
    if isinstance(dispatcher, CFunc):
        return _entry_of_callback(dispatcher, signature)
    if signature == ONLY:
        (key,) = getattr(dispatcher, "artifacts", None) or dispatcher.overloads
        return _entry(dispatcher, key, convention)
    if signature is not None:
        argtypes, _ = sigutils.normalize_signature(signature)
        argtypes = tuple(argtypes)
    else:
        argtypes = tuple(_type_of(dispatcher, v) for v in values)
        starred = _starred(dispatcher)
        if starred is not None:
            argtypes = (*argtypes[:starred], types.StarArgTuple(argtypes[starred].types))
    if not any(map(_may_be_memory, values)):
        return _entry(dispatcher, _compiled_key(dispatcher, argtypes), convention)
    return _entry(dispatcher, _key_with_pointers(dispatcher, values, argtypes), convention)


def _entry_of_callback(callback: Any, signature: str | None) -> Entry:
    own = callback._sig
    if signature is not None and signature != ONLY:
        wanted, _ = sigutils.normalize_signature(signature)
        if tuple(wanted) != tuple(own.args):
            raise UsageError(f"{callback.__qualname__} is {own}, not {signature}")
    return Entry(
        callback.address,
        "c",
        own.return_type,
        tuple(own.args),
        ((callback.address, callback.native_name), *_symbols(callback._library)),
        False,
        None,
        callback,
        callback=True,
    )


def _may_be_memory(value: Any) -> bool:
    return value is None or isinstance(value, np.ndarray)


def _key_with_pointers(
    dispatcher: Any, values: Sequence[Any], argtypes: tuple[Any, ...]
) -> tuple[Any, ...]:
    """As `_compiled_key`, where arrays and None may stand for pointers.

    That no call of Numba's means: only a signature that was given has pointers, and it is the one
    that is meant when the other arguments fit it.
    """
    with_pointers = [key for key in dispatcher.overloads if any(map(is_pointer, key))]
    if not with_pointers:
        return _compiled_key(dispatcher, argtypes)
    convert = dispatcher.targetdescr.typing_context.can_convert
    fitting = [
        key
        for key in with_pointers
        if len(key) == len(values)
        and all(
            points_into(kind, value) or (not is_pointer(kind) and convert(given, kind) is not None)
            for kind, value, given in zip(key, values, argtypes, strict=True)
        )
    ]
    return fitting[0] if len(fitting) == 1 else _compiled_key(dispatcher, argtypes)


def _entry(dispatcher: Any, key: tuple[Any, ...], convention: Convention) -> Entry:
    artifact = (getattr(dispatcher, "artifacts", None) or {}).get(key)
    if artifact is not None:
        fndesc = artifact.fndesc if hasattr(artifact, "fndesc") else artifact.result.fndesc
        address = artifact.address if convention == "numba" else artifact.c_address
        if address is None:
            raise UsageError(f"{dispatcher.py_func.__qualname__}{key} has no C entry")
        return Entry(
            address,
            convention,
            fndesc.restype,
            tuple(fndesc.argtypes),
            ((artifact.address, fndesc.llvm_func_name), *getattr(artifact, "symbols", ())),
            True,
            getattr(artifact, "digest", None),
            artifact,
        )
    if convention == "c":
        raise UsageError(f"{dispatcher.py_func.__qualname__} is not checked: it has no C entry")
    compiled = dispatcher.overloads[key]
    fndesc, library = compiled.fndesc, compiled.library
    address = library.get_pointer_to_function(fndesc.llvm_func_name)
    if not address:
        raise UsageError(
            f"{dispatcher.py_func.__qualname__}{key} has no native entry: "
            "it was compiled in object mode"
        )
    return Entry(
        address,
        convention,
        fndesc.restype,
        tuple(fndesc.argtypes),
        tuple(_symbols(library)),
        False,
        None,
        compiled,
    )


def _type_of(dispatcher: Any, value: Any) -> Any:
    return value if isinstance(value, types.Omitted) else dispatcher.typeof_pyval(value)


def _starred(dispatcher: Any) -> int | None:
    parameters = numba.core.utils.pysignature(dispatcher.py_func).parameters.values()
    return next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)


def _compiled_key(dispatcher: Any, argtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    if argtypes in dispatcher.overloads:
        return argtypes
    if dispatcher._can_compile:
        dispatcher.compile(argtypes)
        if argtypes in dispatcher.overloads:
            return argtypes
    # Signatures were given at definition: the call converts its arguments to one of them.
    context = dispatcher.targetdescr.typing_context
    found = context.resolve_overload(
        dispatcher, [c.signature for c in dispatcher.overloads.values()], argtypes, {}
    )
    if found is None:
        raise UsageError(
            f"{dispatcher.py_func.__qualname__} has no overload for {argtypes}; "
            f"it has {dispatcher.signatures}"
        )
    return tuple(found.args)


def _symbols(library: Any) -> Iterable[tuple[int, str]]:
    # A closed artifact's library has no module left to list.
    for function in getattr(getattr(library, "_final_module", None), "functions", ()):
        if not function.is_declaration:
            address = library.get_pointer_to_function(function.name)
            if address:
                yield address, function.name


def align(kinds: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values as the overload of these types takes them.

    Parameters
    ----------
    kinds : sequence of numba types
        Omitted and starred ones included.
    values : sequence
        Without omitted ones; starred ones one by one.

    Raises
    ------
    UsageError
        When there are more or fewer.

    Examples
    --------
    >>> align([types.int64, types.Omitted(2), types.StarArgTuple((types.int64,))], [1, 3])
    (1, omitted(default=2), (3,))
    """
    left = list(values)
    found: list[Any] = []
    for kind in kinds:
        if isinstance(kind, types.Omitted):
            found.append(kind)
            continue
        starred = isinstance(kind, types.StarArgTuple | types.StarArgUniTuple)
        count = len(kind) if starred else 1
        if len(left) < count:
            raise UsageError(f"{len(values)} values are too few for ({', '.join(map(str, kinds))})")
        found.append(tuple(left[:count]) if starred else left[0])
        del left[:count]
    if left:
        raise UsageError(f"{len(values)} values are too many for ({', '.join(map(str, kinds))})")
    return tuple(found)


def drive(entry: Entry, window: Window, forms: Sequence[Form]) -> Any:
    """Return a dispatcher of one overload that calls such an entry inside an open window.

    It takes the entry's address and the values of the forms, returns what the entry returns (None
    for what no Python object stands for), and raises what the entry raises. It serves all entries
    of the same types.

    Parameters
    ----------
    entry : Entry
        What to call, or another of the same convention and types.
    window : Window
        How to count.
    forms : sequence of Form
        How each native argument comes about.
    """
    leaves = [_plain(kind) for form in forms for kind in form.leaves()]
    # One parameter each: a starred tuple would be another type than its elements.
    names = ", ".join(f"a{i}" for i in range(len(leaves)))
    comma = "," if names else ""
    scope: dict[str, Any] = {"invoke": _invocation(entry, window, tuple(forms), leaves)}
    exec(f"def driver(target, {names}):\n    return invoke(target, ({names}{comma}))\n", scope)
    return numba.njit((types.uintp, *leaves))(scope["driver"])


def call(driver: Any, address: int, leaves: Sequence[Any]) -> Any:
    """Call through a driver, without asking again what type each value is.

    Parameters
    ----------
    driver : dispatcher
        From `drive`.
    address : int
        Of the entry.
    leaves : sequence
        From `flatten`, which has seen to it that they are of the types.
    """
    (compiled,) = driver.overloads.values()
    return compiled.entry_point(address, *leaves)


def _plain(ty: Any) -> Any:
    if isinstance(ty, types.StarArgTuple | types.StarArgUniTuple):
        return types.Tuple(ty.types)
    return ty


def _invocation(
    entry: Entry, window: Window, forms: tuple[Form, ...], leaves: Sequence[Any]
) -> Any:
    boxed = can_box(entry.restype)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        assembly = Assembly(
            context, builder, iter(cgutils.unpack_tuple(builder, arguments[1], len(leaves)))
        )
        flat = [assembly.value(form) for form in forms]
        if entry.convention == "numba":
            shape = context.call_conv.get_function_type(entry.restype, entry.argtypes)
        else:
            nothing = entry.restype in (types.void, types.none)
            returned = ir.VoidType() if nothing else context.get_value_type(entry.restype)
            shape = ir.FunctionType(returned, [value.type for value in flat])

        def pointer(address: int, kind: Any) -> Any:
            value = context.add_dynamic_addr(builder, address, info="measured")
            return builder.bitcast(value, kind.as_pointer())

        target = builder.inttoptr(arguments[0], shape.as_pointer())
        action = ir.FunctionType(ir.VoidType(), ())
        opens, closes = pointer(window.open, action), pointer(window.close, action)
        builder.call(opens, ())
        if entry.convention == "c":
            result = builder.call(target, flat)
            builder.call(closes, ())
            assembly.drop()
            return context.get_dummy_value() if nothing else result
        status, result = context.call_conv.call_function(
            builder, target, entry.restype, entry.argtypes, flat
        )
        builder.call(closes, ())
        assembly.drop()
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        result = imputils.fix_returning_optional(
            context, builder, make_signature(entry.restype, *entry.argtypes), status, result
        )
        if not boxed:
            context.nrt.decref(builder, entry.restype, result)
            return context.get_dummy_value()
        return imputils.impl_ret_new_ref(context, builder, entry.restype, result)

    @intrinsic  # type: ignore[untyped-decorator]
    def invoke(typingctx: Any, target: Any, arguments: Any) -> Any:
        # As declared: of a tuple of literals inference would make one of plain numbers.
        return (entry.restype if boxed else types.none)(target, arguments), code

    return invoke
