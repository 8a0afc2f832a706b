"""Functions as values inside a world: one of several, and pointers to compiled ones.

Numba gives a variable that may be one of two jitted functions a type without a signature, and
takes the signature from whatever one of them happened to be compiled for first, in the whole
process. Here such a value is the number of the function, and a call of it is a branch to each of
them: no memory of earlier compiles, any argument types, and no pointer for an analysis to lose.

Where a signature is known (a dispatcher with one declared signature, a container of such), values
are Numba's first-class functions, made from this world's own counterparts.

Verified on the Numba versions in `numba_internals.VERIFIED_NUMBA`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)
from alloccheck.compile.recursion import NothingKnown, RoundLost

# isort: split
from numba.core import cgutils, errors, types, typing, utils
from numba.core.datamodel import PrimitiveModel, register_default
from numba.core.pythonapi import box
from numba.core.typeconv import Conversion

_NUMBER = ir.IntType(32)

_numba_dispatcher = types.Dispatcher.dispatcher


def original_of(function: Any) -> Any:
    """Return the user's dispatcher behind a dispatcher type, not a world's counterpart."""
    return _numba_dispatcher.fget(function)


class ChoiceSignature(typing.templates.Signature):  # type: ignore[misc]
    """The signature of a call of a `Choice`, and those of its functions.

    They are kept from typing to lowering: by then a function that calls itself is not being
    inferred any more, and asking again would compile it again.

    Parameters
    ----------
    return_type, args, recvr
        As in Numba.
    each : tuple of (Signature or None)
        In the order of the functions; None where nothing is known yet.
    """

    __slots__ = ("each",)

    def __init__(
        self, return_type: Any, args: Any, recvr: Any, pysig: Any = None, each: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(return_type, args, recvr, pysig)
        self.each = each

    def replace(self, **changes: Any) -> ChoiceSignature:
        kept = {"return_type": self.return_type, "args": self.args, "recvr": self.recvr}
        return type(self)(**{**kept, "pysig": self.pysig, **changes}, each=self.each)

    __hash__ = typing.templates.Signature.__hash__

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ChoiceSignature) and self.each == other.each and super().__eq__(other)
        )


class Choice(types.Callable):  # type: ignore[misc]
    """The type of a value that is one of several jitted functions without a declared signature.

    Parameters
    ----------
    functions : iterable of Dispatcher types
        What it may be. Kept in an order that does not depend on how inference met them.
    """

    def __init__(self, functions: Iterable[Any]) -> None:
        # Inference also collects types in sets, whose order differs between processes. Functions
        # with one origin, such as two closures, stay in the order they were met.
        self.functions = tuple(sorted(dict.fromkeys(functions), key=_origin))
        super().__init__(f"choice({', '.join(map(str, self.functions))})")

    @property
    def key(self) -> Any:
        return self.functions

    def unify(self, typingctx: Any, other: Any) -> Any:
        return unified(self, other)

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        if isinstance(other, Choice):
            return Conversion.safe if set(self.functions) <= set(other.functions) else None
        if isinstance(other, types.FunctionType):
            fits = all(one.can_convert_to(typingctx, other) for one in self.functions)
            return Conversion.safe if fits else None
        return None

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        fits = isinstance(other, _CHOSEN) and set(_functions(other)) <= set(self.functions)
        return Conversion.safe if fits else None

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call: each function's own, their results joined.

        Raises
        ------
        UnsupportedError
            For keyword arguments, as Numba does for first-class functions.
        TypingError
            When the results have no common type.
        """
        if kws:
            raise errors.UnsupportedError("first-class function call cannot use keyword arguments")
        each: list[Any] = []
        results: list[tuple[str, Any]] = []
        nothing_known: NothingKnown | None = None
        for function in self.functions:
            try:
                own = function.get_call_type(context, args, kws)
            except NothingKnown as error:
                # Bottom, which the others are joined with: this round is not the last one.
                nothing_known = error
                each.append(None)
                continue
            if own is None:
                return None
            each.append(own)
            results.append((original_of(function).__name__, types.unliteral(own.return_type)))
        if nothing_known is not None and not results:
            raise nothing_known
        joined = context.unify_types(*(result for _, result in results))
        if joined is None:
            raise errors.TypingError(
                "the functions that may be called here return types that cannot be unified: "
                + ", ".join(f"{name} returns {result}" for name, result in results)
            )
        return ChoiceSignature(joined, tuple(args), self, each=tuple(each))

    def get_call_signatures(self) -> Any:
        return (), True

    def get_impl_key(self, sig: Any) -> Any:
        return type(self)


def _origin(function: Any) -> tuple[str, str, str, int]:
    python_function = original_of(function).py_func
    code = python_function.__code__
    return (
        str(python_function.__module__),
        python_function.__qualname__,
        code.co_filename,
        code.co_firstlineno,
    )


@register_default(Choice)
class _ChoiceModel(PrimitiveModel):  # type: ignore[misc]
    """The number of the function."""

    def __init__(self, manager: Any, declared: Any) -> None:
        super().__init__(manager, declared, _NUMBER)


@box(Choice)  # type: ignore[untyped-decorator]
def _box(typ: Any, value: Any, c: Any) -> Any:
    found = cgutils.alloca_once_value(c.builder, c.pyapi.get_null_object())
    for number, function in enumerate(typ.functions):
        with c.builder.if_then(_is(c.builder, value, number)):
            chosen = original_of(function)
            address = c.context.add_dynamic_addr(c.builder, id(chosen), info=type(chosen).__name__)
            c.builder.store(c.builder.bitcast(address, c.pyapi.pyobj), found)
    result = c.builder.load(found)
    c.pyapi.incref(result)
    return result


_CHOSEN = (types.Dispatcher, types.RecursiveCall, Choice)
"""Types of values of which it is known which function they are, or of which functions one."""


def _functions(typ: Any) -> tuple[Any, ...]:
    """Return the types of the dispatchers that a value may be."""
    if isinstance(typ, Choice):
        return typ.functions
    # A function that is being inferred has a type of its own where it calls itself.
    return (typ.dispatcher_type if isinstance(typ, types.RecursiveCall) else typ,)


def unified(one: Any, other: Any) -> Any:
    """Return the type of a value that is of either of two types, of which one is a dispatcher's.

    Numba's rule, except that functions without a declared signature make a `Choice`, also when they
    take different numbers of arguments.

    Parameters
    ----------
    one, other : Type
        Types of dispatchers, choices, first-class functions, or anything else.

    Returns
    -------
    Type or None
        None when there is none.
    """
    functions: list[Any] = []
    pointers = set()
    counts = set()
    if not all(isinstance(typ, (*_CHOSEN, types.FunctionType)) for typ in (one, other)):
        return None
    for typ in (one, other):
        if isinstance(typ, types.FunctionType):
            pointers.add(typ)
            counts.add((typ.nargs, typ.nargs))
            continue
        for function in _functions(typ):
            counts.add(utils.get_nargs_range(original_of(function).py_func))
            declared = function.dispatcher.get_function_type()
            if declared is not None:
                pointers.add(declared)
            functions.append(function)
    if not pointers:
        return Choice(functions)
    return pointers.pop() if len(pointers) == len(counts) == 1 else None


# --- lowering -------------------------------------------------------------------------------------


def _is(builder: Any, value: Any, number: int) -> Any:
    return builder.icmp_unsigned("==", value, _NUMBER(number))


def identity(
    context: Any, builder: Any, signature: Any, arguments: Any, *, negated: bool = False
) -> Any:
    """Lower ``f is g`` of functions, which Numba takes for false when no ``==`` is known.

    Parameters
    ----------
    context, builder : object
        Numba's.
    signature : Signature
        Of the comparison; one of its arguments is a dispatcher or a `Choice`.
    arguments : sequence of llvmlite values
        What is compared.
    negated : bool
        Whether it is ``is not``.

    Raises
    ------
    UnsupportedError
        When the other one is a pointer to a function.
    """
    common = None
    if all(isinstance(typ, _CHOSEN) for typ in signature.args):
        common = Choice(function for typ in signature.args for function in _functions(typ))
    elif any(isinstance(typ, types.FunctionType) for typ in signature.args):
        raise errors.UnsupportedError("identity of a function and a pointer to one is not known")
    if common is None:
        return cgutils.true_bit if negated else cgutils.false_bit
    one, other = (
        context.cast(builder, value, typ, common)
        for value, typ in zip(arguments, signature.args, strict=True)
    )
    return builder.icmp_unsigned("!=" if negated else "==", one, other)


def caller(context: Any, choice: Choice, signature: Any) -> Callable[..., Any]:
    """Return what lowers a call of a `Choice`, as Numba's contexts do for other functions.

    Parameters
    ----------
    context : WorldContext
        The world's.
    choice : Choice
        The type of the callee.
    signature : ChoiceSignature
        As `Choice.get_call_type` returned it.
    """
    return functools.partial(_call, context, choice, signature)


def _call(
    context: Any,
    choice: Choice,
    signature: ChoiceSignature,
    builder: Any,
    arguments: Any,
    loc: Any = None,
) -> Any:
    """Branch to each function; the last one is called without a question."""
    value, *given = arguments
    argument_types = signature.args
    result = cgutils.alloca_once(builder, context.get_value_type(signature.return_type))
    end = builder.append_basic_block("chosen.end")
    for number, function in enumerate(choice.functions):
        last = number == len(choice.functions) - 1
        following = None
        if not last:
            here = builder.append_basic_block("chosen")
            following = builder.append_basic_block("chosen.not")
            builder.cbranch(_is(builder, value, number), here, following)
            builder.position_at_end(here)
        own = signature.each[number]
        if own is None:
            raise RoundLost
        folded = _folded(context, builder, own, argument_types, given)
        returned = context.get_function(function, own)(builder, folded, loc)
        builder.store(
            context.cast(builder, returned, own.return_type, signature.return_type), result
        )
        builder.branch(end)
        if following is not None:
            builder.position_at_end(following)
    builder.position_at_end(end)
    return builder.load(result)


def _folded(context: Any, builder: Any, own: Any, argument_types: Any, given: Any) -> Any:
    """Return the arguments as one function takes them: converted, defaults and all."""

    def normal(index: int, parameter: Any, argument: Any) -> Any:
        typ, value = argument
        return context.cast(builder, value, typ, own.args[index])

    def default(index: int, parameter: Any, value: Any) -> Any:
        return context.get_constant_generic(builder, own.args[index], value)

    def star(index: int, parameter: Any, rest: Any) -> Any:
        values = [
            context.cast(builder, value, typ, its)
            for (typ, value), its in zip(rest, own.args[index], strict=True)
        ]
        return cgutils.make_anonymous_struct(builder, values)

    arguments = tuple(zip(argument_types, given, strict=True))
    return typing.fold_arguments(own.pysig, arguments, {}, normal, default, star)


def cast(context: Any, builder: Any, value: Any, given: Any, wanted: Any) -> Any:
    """Convert a dispatcher or a choice to a choice or a first-class function.

    Returns
    -------
    llvmlite value or None
        None when it is another conversion.
    """
    if not isinstance(given, _CHOSEN):
        return None
    if isinstance(wanted, Choice):
        each = [_NUMBER(wanted.functions.index(function)) for function in _functions(given)]
    elif isinstance(wanted, types.FunctionType):
        each = [
            pointer(context, builder, function.dispatcher, original_of(function), wanted)
            for function in _functions(given)
        ]
    else:
        return None
    return _select(builder, value, each)


def _select(builder: Any, value: Any, each: list[Any]) -> Any:
    found = each[-1]
    for number, one in enumerate(each[:-1]):
        found = builder.select(_is(builder, value, number), one, found)
    return found


def pointer(context: Any, builder: Any, dispatcher: Any, original: Any, wanted: Any) -> Any:
    """Return a first-class function: Numba's struct of two addresses and the Python object.

    Parameters
    ----------
    context, builder : object
        Numba's.
    dispatcher : WorldDispatcher
        This world's counterpart.
    original : dispatcher
        What Python sees when the value is returned.
    wanted : FunctionType
        The signature, as a type.
    """
    address = context.get_value_type(types.voidptr)
    struct = cgutils.create_struct_proxy(wanted)(context, builder)
    result = dispatcher.pointee(wanted.signature)
    library, name = context.c_wrapper(result)
    as_c = cgutils.get_or_insert_function(
        builder.module, context.get_value_type(wanted.ftype).pointee, name
    )
    struct.c_addr = builder.bitcast(as_c, address)
    function = context.declare_function(builder.module, result.fndesc)
    struct.jit_addr = builder.bitcast(function, address)
    struct.py_addr = context.add_dynamic_addr(builder, id(original), info=type(original).__name__)
    context.active_code_library.add_linking_library(library)
    context.active_code_library.add_linking_library(result.library)
    return struct._getvalue()


def callback(context: Any, builder: Any, result: Any, original: Any, wanted: Any) -> Any:
    """Return a C callback as a first-class function, which is called as C would call it.

    An exception does not come back from there: Numba's wrapper prints it, through the interpreter,
    and returns a value all the same.

    Parameters
    ----------
    context, builder : object
        Numba's.
    result : CompileResult
        The callback's function, as this world compiled it.
    original : CFunc
        What Python sees when the value is returned.
    wanted : FunctionType
        The signature, as a type.
    """
    struct = cgutils.create_struct_proxy(wanted)(context, builder)
    library, name = context.c_wrapper(result)
    as_c = cgutils.get_or_insert_function(
        builder.module, context.get_value_type(wanted.ftype).pointee, name
    )
    struct.c_addr = builder.bitcast(as_c, context.get_value_type(types.voidptr))
    struct.py_addr = context.add_dynamic_addr(builder, id(original), info=type(original).__name__)
    context.active_code_library.add_linking_library(library)
    return struct._getvalue()
