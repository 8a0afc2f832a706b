"""What others have registered with Numba: any of it may be chosen by a compile.

Finds the functions of registrations that are not Numba's own, with what else is said about them.
Knows Numba's registries; nothing of keys or digests.
"""

from __future__ import annotations

import functools
import sys
import types as python_types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import is_
from typing import Any

from alloccheck.compile import numba_internals
from alloccheck.compile.origin import is_foreign, is_trusted_module
from alloccheck.errors import Unstorable

# isort: split
from numba.core import datamodel, imputils, pythonapi, registry, types
from numba.core.cpu_options import InlineOptions
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.rewrites.registry import rewrite_registry
from numba.core.typing import templates
from numba.core.typing.typeof import typeof_impl

_REGISTRIES = (templates.Registry, imputils.Registry)
_OF_OVERLOADS = (templates._OverloadFunctionTemplate, templates._OverloadAttributeTemplate)
_RESULTS = (
    *numba_internals.TEMPLATE_CACHES,
    *numba_internals.TEMPLATE_VARIANT_CACHES,
    "metadata",
    "_abc_impl",
)
"""Attributes of template classes that hold what came of them, not what they are."""

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class Registration:
    """Something that others than Numba registered.

    Parameters
    ----------
    label : str
        Where, for what, and with which options.
    functions : tuple of Callable
        The Python functions in it.
    foreign_keys : tuple
        Functions, classes and types of others that it is about. It is chosen only where the code
        meets all of them: values of other types do not lead there.
    choosers : tuple of Callable
        Those of the functions that only choose the implementation of an overload.
    """

    label: str
    functions: tuple[Any, ...]
    foreign_keys: tuple[Any, ...]
    choosers: tuple[Any, ...] = ()


_Found = Registration | Unstorable
"""What an entry is made of, or why that cannot be said."""


class Extensions:
    """Finds registrations; each entry of a registry is looked at once.

    Examples
    --------
    >>> def extended(x):
    ...     raise NotImplementedError
    >>> found = list(Extensions().registrations())
    """

    def __init__(self) -> None:
        # With each what it was found for, so that identities stay what they are.
        self._known: dict[tuple[int, ...], tuple[Any, tuple[_Found, ...]]] = {}
        self._lists: dict[int, tuple[list[Any], list[Any], tuple[_Found, ...]]] = {}

    def registrations(self) -> Iterator[Registration]:
        """Yield what is registered now, each registry in its own order.

        Raises
        ------
        Unstorable
            For something callable that is not made of Python functions.
        """
        for one in self._found():
            if isinstance(one, Unstorable):
                raise Unstorable(str(one))
            yield one

    def readable(self) -> Iterator[Registration]:
        """Yield the same, without what is not made of Python functions."""
        return (one for one in self._found() if isinstance(one, Registration))

    def _found(self) -> Iterator[_Found]:
        for where, items in _growing():
            yield from self._in_list(where, items)
        for where, keys, item in _tables():
            yield from self._looked_at(where, keys, item)

    def _in_list(self, where: str, items: list[Any]) -> tuple[_Found, ...]:
        """Look through a registry's list, if it is not what it was."""
        _, before, found = self._lists.get(id(items), (None, None, ()))
        if before is None or len(before) != len(items) or not all(map(is_, before, items)):
            before = list(items)
            # What an intrinsic was lowered by is for whoever compiled it: others compile it anew,
            # and have its definition among what they refer to.
            found = tuple(
                one
                for item in before
                if not (isinstance(item, tuple) and item[0] is item[1])
                for one in self._looked_at(where, (), item)
            )
            self._lists[id(items)] = items, before, found
        return found

    def _looked_at(self, where: str, keys: tuple[Any, ...], item: Any) -> tuple[_Found, ...]:
        key = (id(item), *map(id, keys))
        known = self._known.get(key)
        if known is None:
            found: list[_Found] = []
            try:
                found += _registration(where, item, keys)
            except Unstorable as error:
                found.append(error.with_traceback(None))
            known = self._known[key] = ((item, keys), tuple(found))
        return known[1]


def _registration(where: str, item: Any, about: tuple[Any, ...] = ()) -> Iterator[Registration]:
    """Look at one registration, keys apart: these are only compared."""
    if not isinstance(item, tuple):
        part, keys = item, about
    elif isinstance(item[-1], types.Type):
        part, keys = item[-1], item[:-1]  # (value, type), of typing
    else:
        part, keys = item[0], item[1:]  # (implementation, key...), of lowering
    functions = tuple(foreign_functions(part))
    if not functions:
        return
    said = [_named(one) for one in keys]
    choosers: tuple[Any, ...] = ()
    if isinstance(part, type):
        own = vars(part)
        if issubclass(part, _OF_OVERLOADS):
            choosers = tuple(foreign_functions(own.get("_overload_func")))
        said += [f"{name}={_option(own[name])}" for name in sorted(own) if name not in _RESULTS]
        keys = (*keys, own["key"]) if "key" in own else keys
    yield Registration(
        f"{where}: {'; '.join(said)}", functions, tuple(_foreign_keys(keys)), choosers
    )


def _foreign_keys(keys: Iterable[Any]) -> Iterator[Any]:
    for one in keys:
        if isinstance(one, tuple):
            yield from _foreign_keys(one)
        elif isinstance(one, _Intrinsic):
            # Whoever meets it has no key; to all others it is nothing.
            if is_foreign(one._defn):
                yield one._defn
        elif isinstance(one, python_types.FunctionType):
            if is_foreign(one):
                yield one
        elif isinstance(one, type):
            if not is_trusted_module(one.__module__):
                yield one
        elif isinstance(one, types.Type) and not is_trusted_module(type(one).__module__):
            yield type(one)


def _named(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_named(one) for one in value)})"
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else str(value)


def _option(value: Any) -> str:
    """Return an attribute of a template class as text; what is made when it is used is left out."""
    if isinstance(value, staticmethod):
        value = value.__func__
    if isinstance(value, InlineOptions):
        value = value._inline
    if isinstance(value, dict):
        if all(type(one) in _PLAIN for pair in value.items() for one in pair):
            return repr(sorted(value.items()))
        return ""
    if type(value) in _PLAIN:
        return repr(value)
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else ""


def _growing() -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of all registries, Numba's own ones also before any context has them."""
    registries: dict[int, Any] = {}
    contexts = (
        registry.cpu_target._toplevel_typing_context,
        registry.cpu_target._toplevel_target_context,
    )
    for context in contexts:
        registries.update((id(one), one) for one in context._registries)
    for module in _modules_of_numba():
        for one in list(vars(module).values()):
            if isinstance(one, _REGISTRIES):
                registries[id(one)] = one
    # Which of Numba's modules are loaded, and in which order, must not matter: theirs are left out.
    for one in list(registries.values()):
        loader = (
            templates.RegistryLoader
            if isinstance(one, templates.Registry)
            else imputils.RegistryLoader
        )
        for name in loader.registry_items:
            yield name, getattr(one, name)


def _modules_of_numba() -> list[python_types.ModuleType]:
    return [one for name, one in list(sys.modules.items()) if name.startswith("numba.")]


def _tables() -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield the entries of registries where they may be replaced: where, keys, entry."""
    tables: dict[str, Any] = {
        name: getattr(pythonapi, name).functions for name in ("_boxers", "_unboxers", "_reflectors")
    }
    tables["models"] = datamodel.registry.default_manager._handlers
    tables["typeof"] = typeof_impl.registry
    for name, table in tables.items():
        for key, entry in list(table.items()):
            yield name, (key,), entry
    for kind, rewrites in list(rewrite_registry.rewrites.items()):
        for entry in list(rewrites):
            yield f"rewrite {kind}", (), entry
    # What parallel transformations ask about statements of other kinds.
    for module in _modules_of_numba():
        for name, table in list(vars(module).items()):
            if isinstance(table, dict) and (
                name.endswith("_extensions") or name.startswith("ir_extension_")
            ):
                for entry in list(table.values()):
                    yield name, (), entry


def foreign_functions(value: Any) -> Iterator[Any]:
    """Yield the functions in a registration with Numba that others than Numba wrote.

    Parameters
    ----------
    value : object
        A template class, a function, or anything else that registries hold.

    Raises
    ------
    Unstorable
        For something callable that is not made of functions.
    """
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, python_types.FunctionType):
            if is_foreign(one):
                yield one
                continue
            waiting += _cells(one)
            waiting.append(getattr(one, "__wrapped__", None))
        elif isinstance(one, staticmethod | classmethod):
            waiting.append(one.__func__)
        elif isinstance(one, Dispatcher):
            waiting.append(one.py_func)
        elif isinstance(one, type):
            if one is value or not is_trusted_module(one.__module__):
                # What a template is about is only compared.
                waiting += [x for name, x in vars(one).items() if name != "key"]
        elif isinstance(one, types.Type):
            waiting += getattr(one, "templates", ())
            if not is_trusted_module(type(one).__module__):
                waiting += list(vars(type(one)).values())
        elif isinstance(one, InlineOptions):
            waiting.append(one._inline)
        elif isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif callable(one) and not is_trusted_module(type(one).__module__):
            raise Unstorable(
                f"an extension of Numba registered a {type(one).__module__}."
                f"{type(one).__qualname__}, whose content another process cannot compare"
            )


def _cells(function: Any) -> Iterable[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
