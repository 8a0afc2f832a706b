"""What a function is, as a digest that means the same in every process.

Where :mod:`alloccheck.compile.captures` compares objects within one process, this module digests
content: code, defaults, trust, and every value that the function or anything it refers to could
reach. A value whose content cannot be told makes it give up (`Unstorable`), never guess.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import importlib.util
import struct
import sys
import types as python_types
from collections.abc import Callable
from typing import Any

import numpy as np

from alloccheck.compile import typecodes
from alloccheck.compile.captures import ASSUMPTION_ATTRIBUTE, BY_TEXT, names_of
from alloccheck.compile.disjoint import base_pipeline, disjoint_names
from alloccheck.compile.origin import attribute, is_a, is_foreign, is_trusted_module
from alloccheck.errors import Unstorable

# isort: split
from numba.core import sigutils, types
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.core.typing.templates import Signature

_PLAIN = (bool, int, str, bytes, type(None), type(...))
_IMPORT = dis.opmap["IMPORT_NAME"]
_CONSTANT_ARRAY = 1_000_000
"""Numba compiles larger arrays in by address (``BaseContext.make_constant_array``)."""


class Identity:
    """Digests functions and values; each function once, whatever leads to it.

    Examples
    --------
    >>> def double(x):
    ...     return 2 * x
    >>> one, other = Identity(), Identity()
    >>> one.function(double)
    >>> other.function(double)
    >>> one.digest() == other.digest()
    True
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self._functions: dict[int, tuple[int, Any]] = {}
        self._pending: list[Callable[..., Any]] = []
        self._names: dict[str, None] = {}
        self._texts: set[str] = set()
        """All text met: names of attributes where any function uses ``getattr``."""
        self._modules: dict[int, tuple[str, Any]] = {}
        """And functions that have attributes."""
        self._met: dict[int, Any] = {}
        self._done: set[tuple[int, str]] = set()

    # --- the parts of a question ------------------------------------------------------------------

    def text(self, tag: str, text: str) -> None:
        """Add text; a tag and a length keep neighbours apart."""
        data = text.encode("utf-8", "surrogatepass")
        self._state.update(f"{tag} {len(data)}:".encode())
        self._state.update(data)

    def type(self, type_: Any) -> None:
        """Add a Numba type.

        Raises
        ------
        Unstorable
            When it has no code.
        """
        if is_a(type_, types.StringLiteral):
            self._texts.add(type_.literal_value)
        self.text("type", repr(typecodes.encode(type_)))

    def options(self, options: Any, path: str = "option") -> None:
        """Add options of ``njit``.

        Raises
        ------
        Unstorable
            For an option that is more than plain data.
        """
        for name in sorted(options):
            self.text("option", name)
            self._option(f"{path} {name}", options[name])

    def pipeline(self, path: str, pipeline: Any) -> None:
        """Add a compiler pipeline: Numba's own, or one of ours that starts from it.

        Raises
        ------
        Unstorable
            For a pipeline of somebody else's.
        """
        if base_pipeline(pipeline) not in (None, Compiler):
            self.unknown(path, pipeline, f"{path} is compiled by a pipeline of its own")
        self.text("disjoint", repr(disjoint_names(pipeline)))

    def locals(self, declared: Any) -> None:
        """Add declared types of local variables."""
        for name in sorted(declared):
            self.text("local", name)
            self.type(declared[name])

    def function(self, function: Callable[..., Any]) -> None:
        """Add a Python function with everything that it refers to.

        Raises
        ------
        Unstorable
            Naming what cannot be told in another process.
        """
        self._refer(function)

    def settle(self) -> None:
        """Follow all that is still to be followed.

        Raises
        ------
        Unstorable
            As `function` does.
        """
        while self._pending:
            self._content(self._pending.pop(0))
        self._attributes_of_modules()

    def has_met(self, value: Any) -> bool:
        """Tell whether anything digested so far refers to an object."""
        return id(value) in self._met or id(value) in self._functions

    def digest(self) -> str:
        """Settle, and return the SHA-256.

        Raises
        ------
        Unstorable
            As `function` does.
        """
        self.settle()
        return self._state.hexdigest()

    # --- functions --------------------------------------------------------------------------------

    def _refer(self, function: Callable[..., Any]) -> None:
        known = self._functions.get(id(function))
        if known is None:
            known = self._functions[id(function)] = (len(self._functions), function)
            self._pending.append(function)
        self.text("function", str(known[0]))

    def _content(self, function: Any) -> None:
        name = f"{function.__module__}:{function.__qualname__}"
        self.text("named", name)
        self._code(function.__code__)
        for one in function.__defaults__ or ():
            self.value(f"a default of {name}", one)
        for key, one in sorted((function.__kwdefaults__ or {}).items()):
            self.text("keyword", key)
            self.value(f"the default of {key} of {name}", one)
        if vars(function):
            # What runs while Numba compiles may look at attributes of functions.
            self._modules.setdefault(id(function), (name, function))
        mark = getattr(function, ASSUMPTION_ATTRIBUTE, None)
        if mark is not None:
            self.text("trust", repr((mark.function, sorted(map(str, mark.effects)), mark.reason)))
        for cell_name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                value = cell.cell_contents
            except ValueError:
                self.text("empty", cell_name)
                continue
            self.text("cell", cell_name)
            self.value(f"{cell_name} of {name}", value)
        if is_foreign(function):
            self._globals(function, name)
            self._imports(function, name)

    def _imports(self, function: Any, name: str) -> None:
        """Add the modules that a function imports when it runs, as an overload does."""
        for wanted in sorted(imported_by(function)):
            parts = wanted.split(".")
            for n in range(1, len(parts) + 1):
                one = ".".join(parts[:n])
                found = sys.modules.get(one)
                self.text("imports", one)
                if found is not None:
                    self.value(f"{one}, which {name} imports,", found)
                elif parts[0] not in sys.stdlib_module_names:
                    reason = f"{name} imports {one}, which is not there yet"
                    self.unknown(f"{one}, which {name} imports,", None, reason)

    def _globals(self, function: Any, name: str) -> None:
        scope = function.__globals__
        builtins = scope.get("__builtins__", {})
        builtins = vars(builtins) if isinstance(builtins, python_types.ModuleType) else builtins
        for one in sorted(names_of(function.__code__)):
            self._names[one] = None
            if one in scope:
                self.text("global", one)
                self.value(f"{one} of {name}", scope[one])
            elif one in builtins:
                self.text("builtin", one)
                self.value(f"{one} of {name}", builtins[one])
            else:
                self.text("unbound", one)

    def _code(self, code: python_types.CodeType) -> None:
        # Line numbers and file are compiled in: exceptions and findings name them.
        self.text("file", code.co_filename)
        plain = (
            code.co_name,
            code.co_qualname,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags,
            code.co_firstlineno,
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_cellvars,
        )
        self.text("code", repr(plain))
        for data in (code.co_code, code.co_linetable, code.co_exceptiontable):
            self.text("bytes", data.hex())
        for constant in code.co_consts:
            if isinstance(constant, python_types.CodeType):
                self._code(constant)
            elif isinstance(constant, frozenset):
                self.text("set", repr(sorted(f"{type(x).__name__} {x!r}" for x in constant)))
            else:
                self.value("a constant", constant)

    def _attributes_of_modules(self) -> None:
        """Add what any name used anywhere means as an attribute of any module that is reached.

        A module may travel: through a call's result, or ``getattr``, and so may a name.
        """
        while True:
            names = set(self._names)
            if names & BY_TEXT:
                names |= self._texts
            waiting = [
                (path, module, name)
                for path, module in list(self._modules.values())
                for name in sorted(names)
                if (id(module), name) not in self._done
            ]
            if not waiting and not self._pending:
                return
            for path, module, name in waiting:
                self._done.add((id(module), name))
                own = vars(module)
                if name in own:
                    self.text("attribute", f"{path}.{name}")
                    self.value(f"{path}.{name}", own[name])
            while self._pending:
                self._content(self._pending.pop(0))

    # --- values -----------------------------------------------------------------------------------

    def value(self, path: str, value: Any) -> None:
        """Add a captured value.

        Parameters
        ----------
        path : str
            What it is, for the message.
        value : object
            The value.

        Raises
        ------
        Unstorable
            When its content cannot be told, or would be compiled in as an address.
        """
        self._met[id(value)] = value  # kept, so that its identity stays its own
        if is_a(value, enum.Enum):
            self._enumeration(path, type(value))
            self.text("member", value.name)
        elif type(value) in _PLAIN:
            self.text(type(value).__name__, repr(value))
            if type(value) is str:
                self._texts.add(value)
        elif type(value) is float:
            self.text("float", struct.pack("<d", value).hex())
        elif type(value) is complex:
            self.text("complex", struct.pack("<dd", value.real, value.imag).hex())
        elif is_a(value, tuple):
            self._tuple(path, value)
        elif is_a(value, np.generic):
            self._dtype(path, value.dtype)
            self.text("scalar", value.tobytes().hex())
        elif is_a(value, np.ndarray):
            self._array(path, value)
        elif is_a(value, np.dtype):
            self._dtype(path, value)
        elif is_a(value, types.Type):
            self._type_value(path, value)
        elif is_a(value, Signature):
            self.text("signature", str(len(value.args)))
            for one in (value.return_type, *value.args):
                self._type_value(path, one)
        elif is_a(value, python_types.ModuleType):
            self._module(path, value)
        elif is_a(value, Dispatcher):
            self._dispatcher(path, value)
        elif is_a(value, type):
            self._class(path, value)
        elif self._by_name(value):
            pass
        elif is_a(value, python_types.FunctionType):
            self._refer(value)
        else:
            self._give_up(path, value)

    def unknown(self, path: str, value: Any, reason: str) -> None:
        """Meet something that cannot be told in another process.

        Parameters
        ----------
        path : str
            What it is.
        value : object
            The value.
        reason : str
            Why, as a sentence.

        Raises
        ------
        Unstorable
            Always; in subclasses only where they know no other way.
        """
        raise Unstorable(reason)

    def _give_up(self, path: str, value: Any) -> None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        reason = f"{path} is a {kind}, whose content another process cannot compare"
        self.unknown(path, value, reason)

    def _tuple(self, path: str, value: tuple[Any, ...]) -> None:
        fields = getattr(type(value), "_fields", None)
        if type(value) is not tuple and not isinstance(fields, tuple):
            self._give_up(path, value)
            return
        self.text("tuple", f"{type(value).__module__}.{type(value).__qualname__} {fields!r}")
        self.text("length", str(len(value)))
        for i, one in enumerate(value):
            self.value(f"item {i} of {path}", one)

    def _array(self, path: str, value: Any) -> None:
        if type(value) is not np.ndarray or value.dtype.hasobject:
            self._give_up(path, value)
            return
        contiguous = value.flags.c_contiguous or value.flags.f_contiguous
        if value.nbytes > _CONSTANT_ARRAY or not contiguous:
            self.unknown(path, value, f"{path} is an array that is compiled in by its address")
            return
        self._dtype(path, value.dtype)
        flags = (value.flags.writeable, value.flags.aligned)
        self.text("array", repr((value.shape, value.strides, flags)))
        self.text("content", hashlib.sha256(value.tobytes(order="A")).hexdigest())

    def _dtype(self, path: str, dtype: Any) -> None:
        if dtype.hasobject or dtype.metadata:
            self._give_up(path, dtype)
        fields = dtype.fields
        self.text(
            "dtype", repr((dtype.str, dtype.itemsize, dtype.alignment, dtype.isalignedstruct))
        )
        if dtype.subdtype is not None:
            self.text("shape", repr(dtype.shape))
            self._dtype(path, dtype.base)
        for name in dtype.names or ():
            self.text("field", f"{name} {fields[name][1]} {fields[name][2:]!r}")
            self._dtype(path, fields[name][0])

    def _enumeration(self, path: str, kind: Any) -> None:
        self.text("enumeration", f"{kind.__module__}.{kind.__qualname__} {kind.__mro__[1:]!r}")
        for name, member in kind.__members__.items():
            self.text("member", name)
            self.value(f"{path}.{name}", member.value)

    def _type_value(self, path: str, value: Any) -> None:
        if type(value) is types.ExternalFunction:
            self.text("external function", value.symbol)
            self.value(path, value.sig)
            return
        try:
            self.type(value)
        except Unstorable:
            if not self._by_name(value):
                raise

    def _module(self, path: str, value: python_types.ModuleType) -> None:
        self.text("module", value.__name__)
        if is_trusted_module(value.__name__):
            # What others have put in the place of its own is looked at; the rest is versioned.
            pass
        elif type(value) is not python_types.ModuleType or "__getattr__" in vars(value):
            self.unknown(path, value, f"{path} is a module that computes its attributes")
        self._modules.setdefault(id(value), (path, value))

    def _dispatcher(self, path: str, value: Any) -> None:
        if not is_a(value, CPUDispatcher):
            self._give_up(path, value)
            return
        self.pipeline(path, value._compiler.pipeline_class)
        self.text("dispatcher", type(value).__qualname__)
        self.options(
            {name: one for name, one in value.targetoptions.items() if name != "cache"},
            f"{path}: option",
        )
        self.locals(value.locals)
        self.text("open", repr(bool(value._can_compile)))
        declared = list(getattr(value, "declared_signatures", ()))
        if not value._can_compile:
            declared += list(value.nopython_signatures)
        for one in declared:
            arguments, returned = sigutils.normalize_signature(one)
            self.text("declared", str(len(arguments)))
            for part in arguments:
                self.type(part)
            if returned is not None:
                self.type(returned)
        self._refer(value.py_func)

    def _option(self, path: str, value: Any) -> None:
        if is_a(value, set | frozenset):
            self.text("options", repr(sorted(map(repr, value))))
            if not all(is_a(one, str) for one in value):
                self._give_up(path, value)
        elif is_a(value, dict):
            self.options(value, path)
        elif type(value) in (*_PLAIN, float):
            self.text(type(value).__name__, repr(value))
        else:
            self._give_up(path, value)

    def _class(self, path: str, value: Any) -> None:
        if self._by_name(value):
            return
        if issubclass(value, enum.Enum):
            self._enumeration(path, value)
        elif issubclass(value, BaseException) and value.__module__ != "__main__":
            # Numba writes the way to the class into the code, and imports it when it raises.
            if _named(value.__module__, value.__qualname__) is not value:
                self._give_up(path, value)
            self.text("exception", f"{value.__module__}.{value.__qualname__}")
        else:
            reason = (
                f"{path} is the class {value.__qualname__}, which another process cannot compare"
            )
            self.unknown(path, value, reason)

    def _by_name(self, value: Any) -> bool:
        """Add a value that is known by its name in a versioned or standard module."""
        if is_a(value, python_types.FunctionType) and is_foreign(value):
            return False
        own = attribute(value, "__self__")
        names = (attribute(value, "__qualname__"), attribute(value, "__name__"))
        for module in (attribute(value, "__module__"), type(own).__module__, "numpy"):
            if not isinstance(module, str) or not is_trusted_module(module):
                continue
            for name in names:
                if isinstance(name, str) and _named(module, name) is value:
                    self.text("name", f"{module}.{name}")
                    return True
        return False


def _named(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def imported_by(function: Any) -> set[str]:
    """Return the full names of the modules that a function's import statements name."""
    found: set[str] = set()
    waiting = [function.__code__]
    for one in waiting:
        waiting += [x for x in one.co_consts if isinstance(x, python_types.CodeType)]
        if _IMPORT not in one.co_code[::2]:
            continue
        before: list[Any] = [None, None]
        for instruction in dis.get_instructions(one):
            if instruction.opcode == _IMPORT:
                level = next((x for x in reversed(before) if type(x) is int), 0)
                package = function.__globals__.get("__package__") or ""
                name = "." * level + str(instruction.argval)
                try:
                    found.add(importlib.util.resolve_name(name, package))
                except ImportError:
                    found.add(name)
            elif instruction.opname != "EXTENDED_ARG":
                before = [before[1], instruction.argval]
    return found
