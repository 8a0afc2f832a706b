"""An artifact as it is once loaded: its engine, its addresses, and what Numba asks of it.

Does not say how it came about: compiled just now (`artifact`), or brought back (`portable`). Kept
apart from the compiler so that bringing one back loads none of it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as ll

from alloccheck.compile.image import Image
from alloccheck.compile.job import CompileJob, Configuration
from alloccheck.compile.lifetime import Lifetime
from alloccheck.compile.llvm_contexts import read_text
from alloccheck.compile.objectfile import ObjectFile, read_object
from alloccheck.compile.provenance import Capture, FunctionSource

# isort: split
from numba.core import config
from numba.core.codegen import _CFG


@dataclass(frozen=True, slots=True)
class CEntries:
    """Symbols of the ways in from C.

    Parameters
    ----------
    value : str
        ``ret f(args...)``: returns the value, or a chosen one when the function raised.
    status : str
        ``int32 f(ret*, args...)``: returns 0, or a status that is not 0 when it raised.
    last_status : str
        ``int32 f(void)``: status of the calling thread's last call of `value`.
    inlined : bool
        The body is inlined into `value`, which therefore has to be checked like the body.
    """

    value: str
    status: str
    last_status: str
    inlined: bool = False

    @classmethod
    def of(cls, symbol: str, inlined: bool = False) -> CEntries:
        """Return the entries of a native function."""
        return cls(f"cfunc.{symbol}", f"cstatus.{symbol}", f"claststatus.{symbol}", inlined)

    @property
    def symbols(self) -> tuple[str, ...]:
        """All three."""
        return self.value, self.status, self.last_status


class Engine:
    """Owns the machine code of one artifact.

    It only loads: an engine that has also compiled keeps what code generation knows of the CPU,
    which is larger than most functions.
    """

    def __init__(self, triple: str, data_layout: str, object_code: bytes) -> None:
        module = ll.parse_assembly("")
        module.triple, module.data_layout = triple, data_layout
        machine = ll.Target.from_triple(triple).create_target_machine(jit=True)
        self._engine = ll.create_mcjit_compiler(
            module, machine, use_lmm=config.USE_LLVMLITE_MEMORY_MANAGER
        )
        self._engine.add_object_file(ll.ObjectFileRef.from_data(object_code))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """Return the address of a function."""
        return int(self._engine.get_function_address(symbol))

    def data_address(self, symbol: str) -> int:
        """Return the address of a variable."""
        return int(self._engine.get_global_value_address(symbol))

    def release(self) -> None:
        """Free the code; nothing may run or refer to it."""
        self._engine.close()


_DEBUG = re.compile(r",? !dbg !\d+|^!llvm\.dbg\.cu = .*$|^ *#dbg_.*$", re.MULTILINE)
"""What makes LLVM emit debug information: locations, compile units, records of variables."""


class ClosedLibrary:
    """What is left of a code library once its module is closed: text and addresses.

    Stands where Numba expects ``CompileResult.library``.

    Parameters
    ----------
    name : str
        The library's name.
    listing : bytes
        The optimised IR that was checked, compressed by zlib.
    addresses : mapping of str to int
        The functions in it that can be reached from outside.
    lifetime : Lifetime
        The hold on the code.
    """

    def __init__(
        self, name: str, listing: bytes, addresses: Mapping[str, int], lifetime: Lifetime
    ) -> None:
        self.name = name
        self._listing = listing
        self._addresses = addresses
        self._lifetime = lifetime

    def get_llvm_str(self) -> str:
        """Return the optimised IR that was checked."""
        return zlib.decompress(self._listing).decode()

    def get_asm_str(self) -> str:
        """Return the assembly of the closed module; debug information only if it was asked for."""
        listing = self.get_llvm_str()
        if "emissionKind: FullDebug" not in listing:
            listing = _DEBUG.sub("", listing)
        module = read_text(listing)
        target = ll.Target.from_triple(module.triple or ll.get_process_triple())
        return str(target.create_target_machine().emit_assembly(module))

    def get_function(self, name: str) -> Any:
        """Return a function of the optimised IR."""
        return read_text(self.get_llvm_str()).get_function(name)

    def get_function_cfg(self, name: str, py_func: Any = None, **options: Any) -> Any:
        """Return a function's control-flow graph, as Numba draws it."""
        return _CFG(self, name, py_func, **options)

    def get_pointer_to_function(self, name: str) -> int:
        """Return a function's address, or 0 when the artifact has no such entry."""
        self._lifetime.keep("an address in it was asked for")
        return self._addresses.get(name, 0)


@dataclass(frozen=True, slots=True)
class GeneratorCode:
    """The parts of a generator that run after the call that made it.

    Parameters
    ----------
    descriptor : FunctionDescriptor
        Numba's description of the function that runs to the next ``yield``.
    next_symbol, next_address
        That function in the artifact.
    finalizer_symbol : str or None
        The function that runs when the generator dies.
    """

    descriptor: Any
    next_symbol: str
    next_address: int
    finalizer_symbol: str | None


@dataclass(frozen=True)
class Artifact:
    """Loaded machine code, closed and bound; what was checked is this and nothing else.

    Parameters
    ----------
    job : CompileJob
        The question.
    configuration : Configuration
        Settings, CPU and versions that it was compiled under.
    result : CompileResult
        Numba's result, with an entry point for the C dispatcher.
    symbol, c_symbol : str
        Symbols of the native function and of its C entry (None where types have no C form).
    address, c_address : int
        Their addresses in this process.
    digest : str
        Machine code, read-only data and relocation targets.
    externals : mapping
        Address of each undefined symbol that the code is bound to.
    rounds : int
        Hermetic rounds that recursion took.
    generator : GeneratorCode or None
        What runs after the call, where the function is a generator.
    """

    job: CompileJob
    configuration: Configuration
    result: Any
    symbol: str
    c_symbol: str | None
    address: int
    c_address: int | None
    digest: str
    externals: Mapping[str, int]
    rounds: int
    object_code: bytes = field(repr=False)
    """The object, compressed by zlib."""
    lifetime: Lifetime = field(repr=False)
    """Keeps the code in memory. The addresses above are good while somebody refers to it."""
    generator: GeneratorCode | None = None
    c_entries: CEntries | None = None
    """Symbols of all entries from C, None where types have no C form."""
    status_address: int | None = None
    """Address of the entry ``int32 f(ret*, args...)``."""
    last_status_address: int | None = None
    """Address of ``int32 f(void)``, which tells how the calling thread's last call ended."""
    direct: bool = False
    """Whether the entry at `c_address` is the whole function: the body inlined, and no raise."""
    image: Image = field(repr=False, default_factory=lambda: Image({}, {}))
    sources: tuple[FunctionSource, ...] = field(repr=False, default=())
    """The user's functions that are compiled into it, the root first."""
    captures: tuple[Capture, ...] = field(repr=False, default=())
    """The values that these functions took from around them."""

    @property
    def signature(self) -> Any:
        """Numba's full signature, with the return type that was inferred or declared."""
        return self.result.signature

    @property
    def fndesc(self) -> Any:
        """Numba's descriptor of the native function: its types and calling convention."""
        return self.result.fndesc

    def object_file(self) -> ObjectFile:
        """Read the object that was loaded."""
        return read_object(zlib.decompress(self.object_code))
