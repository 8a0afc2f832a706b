"""An artifact as bytes and plain data that mean the same in another process, and back.

What cannot be written down without an address or an object of this process is refused
(`Unstorable`). What is read back is bound afresh: nothing of it is an address. Knows artifacts;
nothing of files, keys or proofs.
"""

from __future__ import annotations

import ctypes
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alloccheck.compile import numba_internals, typecodes
from alloccheck.compile.disjoint import base_pipeline
from alloccheck.compile.image import Image, Slot, differences, locate
from alloccheck.compile.job import CompileJob, Configuration
from alloccheck.compile.lifetime import Lifetime, reason_to_keep
from alloccheck.compile.llvm_contexts import read_text
from alloccheck.compile.loaded import Artifact, CEntries, ClosedLibrary, Engine
from alloccheck.compile.objectfile import ObjectFile, read_object
from alloccheck.compile.provenance import captures, compiled_functions
from alloccheck.errors import Unstorable

# isort: split
import llvmlite.binding as ll
from numba import _dynfunc
from numba.core import funcdesc, itanium_mangler, registry, types, typing
from numba.core.compiler import Compiler, CompileResult
from numba.core.environment import Environment

if TYPE_CHECKING:
    from alloccheck.compile.artifact import Built

_BY_ADDRESS = re.compile(r"numba\.dynamic\.globals\.[0-9a-f]+")
"""Variables that hold addresses; Numba keeps LLVM from folding them into the code
(``BaseContext.add_dynamic_addr``)."""

_OBJECT_LIMIT = 64 << 20
_LOW = 1 << 32
"""Below lie the addresses of programs that are not position independent, and common integers."""


@dataclass(frozen=True, slots=True)
class Portable:
    """An artifact without a process.

    Parameters
    ----------
    record : dict
        Plain data: symbols, return type, constants of environments, sources, captured values.
    object_code : bytes
        The object that was checked.
    listing : bytes
        Its optimised IR, compressed by zlib.
    """

    record: dict[str, Any]
    object_code: bytes
    listing: bytes


def pack(built: Built) -> Portable:
    """Write a fresh artifact down.

    Parameters
    ----------
    built : Built
        An artifact and what went into it.

    Raises
    ------
    Unstorable
        Naming what means something in this process alone.
    """
    artifact = built.artifact
    job, embedded = artifact.job, built.embedded
    if artifact.generator is not None:
        raise Unstorable("a generator's state lives in objects of the process")
    if embedded.reloads or job.options.get("parallel"):
        raise Unstorable("parallel code needs a thread pool that was set up by compiling")
    if base_pipeline(job.pipeline) not in (None, Compiler):
        raise Unstorable("it was compiled by a pipeline of its own")
    addresses = set(_BY_ADDRESS.findall(built.listing))
    if addresses:
        raise Unstorable(
            f"its code holds {len(addresses)} addresses of this process (of a large "
            "array, a ctypes or cffi function, a first-class function, or an object)"
        )
    _require_named_sources(built)
    object_code = zlib.decompress(artifact.object_code)
    _require_no_addresses(built.object_file)
    returned = artifact.signature.return_type
    code = typecodes.encode(returned)
    if typecodes.decode(code) != returned:
        raise Unstorable(f"the return type {returned} cannot be read back")
    module = read_text(built.listing)
    entries = artifact.c_entries
    if entries is not None and entries != CEntries.of(artifact.symbol, entries.inlined):
        raise Unstorable("its C entries have other names than can be told")
    if _wrapper(artifact.symbol) != artifact.fndesc.llvm_cpython_wrapper_name:
        raise Unstorable("its wrapper has another name than can be told")
    record = {
        "symbol": artifact.symbol,
        "c_entries": None if entries is None else {"inlined": entries.inlined},
        "direct": artifact.direct,
        "kept": reason_to_keep(built.listing),
        "digest": artifact.digest,
        "returns": code,
        "rounds": artifact.rounds,
        "externals": sorted(artifact.externals),
        "root_environment": artifact.fndesc.env_name,
        "environments": {
            symbol: [_constant(one) for one in environment.consts]
            for symbol, environment in embedded.environments.items()
        },
        "triple": str(module.triple),
        "data_layout": str(module.data_layout),
        "library": artifact.result.library.name,
        **_provenance(artifact.sources, artifact.captures),
    }
    return Portable(record, object_code, zlib.compress(built.listing.encode(), 1))


def _wrapper(symbol: str) -> str:
    """Return what Numba calls the wrapper of a native function."""
    return str(itanium_mangler.prepend_namespace(symbol, ns="cpython"))


def _provenance(sources: Any, captured: Any) -> dict[str, Any]:
    """Return what was compiled in; sorted, for the order says only which was linked first."""
    named = [[one.name, one.source_digest, one.code_digest] for one in sources]
    taken = [[one.function, one.name, one.digest, one.note] for one in captured]
    return {"sources": sorted(named, key=repr), "captures": sorted(taken, key=repr)}


def _require_named_sources(built: Built) -> None:
    """Refuse code that came in without being named: by an overload that is not Numba's."""
    job = built.artifact.job
    named = {
        (one.name, one.code_digest)
        for one in compiled_functions(job.function, (), job.argument_types)
    }
    for one in built.artifact.sources:
        if (one.name, one.code_digest) not in named:
            raise Unstorable(
                f"{one.name} is compiled in, but no function names it: an extension of Numba "
                "chose it, which another process may not do"
            )


def _require_no_addresses(object_file: ObjectFile) -> None:
    """Look for a word in the object that is an address of this process, and refuse it."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
    except OSError as error:
        raise Unstorable(f"the memory map of this process cannot be read: {error}") from None
    spans = [tuple(int(x, 16) for x in line.split(None, 1)[0].split("-")) for line in maps]
    spans = sorted(one for one in spans if one[0] >= _LOW)
    starts = np.array([one[0] for one in spans], dtype=np.uint64)
    ends = np.array([one[1] for one in spans], dtype=np.uint64)
    for section in object_file.sections:
        data = section.data + bytes(-len(section.data) % 8)
        for shift in range(8):
            words = np.frombuffer(data[shift : len(data) - (8 - shift) % 8], dtype="<u8")
            place = np.searchsorted(starts, words, side="right").astype(np.int64) - 1
            inside = (place >= 0) & (words < ends[np.maximum(place, 0)])
            if inside.any():
                where = int(np.argmax(inside)) * 8 + shift
                raise Unstorable(
                    f"the word at {section.name}+{where:#x} may be an address of this process"
                )


# --- constants ------------------------------------------------------------------------------------


def _constant(value: Any) -> Any:
    """Return an environment's constant as plain data."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": struct.pack("<d", value).hex()}
    if isinstance(value, np.dtype) and _is_plain(value):
        return {"dtype": value.str}
    if type(value) is tuple:
        return {"tuple": [_constant(one) for one in value]}
    raise Unstorable(
        f"its wrapper needs the {type(value).__qualname__} {str(value)[:60]}, an object of this "
        "process"
    )


def _is_plain(dtype: Any) -> bool:
    """Return whether a dtype is all that its string says."""
    composed = dtype.names is not None or dtype.subdtype is not None
    return not (composed or dtype.hasobject or dtype.metadata) and np.dtype(dtype.str) == dtype


def _value(data: Any) -> Any:
    """Return the constant that `_constant` wrote."""
    if data is None or type(data) in (bool, int, str):
        return data
    if isinstance(data, dict) and len(data) == 1:
        ((kind, content),) = data.items()
        if kind == "float":
            return struct.unpack("<d", bytes.fromhex(content))[0]
        if kind == "dtype":
            return np.dtype(content)
        if kind == "tuple":
            return tuple(_value(one) for one in content)
    raise Unstorable(f"no constant is written as {str(data)[:60]}")


# --- bringing back --------------------------------------------------------------------------------


def unpack(job: CompileJob, configuration: Configuration, portable: Portable) -> Artifact:
    """Load a written artifact into this process.

    Parameters
    ----------
    job : CompileJob
        The question that it answers.
    configuration : Configuration
        The present one, which is that of the artifact.
    portable : Portable
        What `pack` returned.

    Returns
    -------
    Artifact
        Bound to this process's symbols, and compared in memory with the object.

    Raises
    ------
    Unstorable
        When anything is not as it was written, or not as it must be in this process.
    """
    record = portable.record
    if len(portable.object_code) > _OBJECT_LIMIT:
        raise Unstorable("the object is too large")
    object_file = read_object(portable.object_code)
    if object_file.digest != record["digest"]:
        raise Unstorable("the machine code is not the one that was certified")
    if list(object_file.undefined) != record["externals"]:
        raise Unstorable("the object needs other symbols than were checked")
    sources = compiled_functions(job.function, (), job.argument_types)
    captured = captures(sources)
    now = _provenance(sources, captured)
    for part, found in now.items():
        if record[part] != found:
            raise Unstorable(f"the {part} are not those that were compiled")
    returned = typecodes.decode(record["returns"])
    symbol = record["symbol"]
    told = record["c_entries"]
    entries = None if told is None else CEntries.of(symbol, _flag(told["inlined"]))
    exported = frozenset((symbol, _wrapper(symbol), *(entries.symbols if entries else ())))
    if not exported <= {one.name for one in object_file.symbols if one.function}:
        raise Unstorable("the object does not define its entries")
    codegen = registry.cpu_target._toplevel_target_context.codegen()
    if (record["triple"], record["data_layout"]) != (configuration.triple, codegen._data_layout):
        raise Unstorable("the object is laid out for another machine")
    externals = _bind(record["externals"])
    engine = Engine(record["triple"], record["data_layout"], portable.object_code)
    environments = {
        name: _environment(job, name, consts) for name, consts in record["environments"].items()
    }
    slots = tuple(_fill(engine, object_file, environments))
    image = _image(object_file, engine, exported, slots)
    for found in differences(object_file, image, externals, ll.address_of_symbol):
        raise Unstorable(f"the loaded code differs: {found.message}")
    root = environments[record["root_environment"]]
    lifetime = Lifetime(engine, tuple(environments.values()), _reason(record["kept"]))
    descriptor = _descriptor(job, returned, record)
    entry_point = _dynfunc.make_function(
        descriptor.lookup_module(),
        descriptor.qualname.split(".")[-1],
        f"checked artifact of {descriptor.qualname!r}",
        engine.address(_wrapper(symbol)),
        root,
        lifetime.held,
    )
    addresses = {one: engine.address(one) for one in exported}
    library = ClosedLibrary(record["library"], portable.listing, addresses, lifetime)
    result = CompileResult(
        typing_context=registry.cpu_target._toplevel_typing_context,
        target_context=registry.cpu_target._toplevel_target_context,
        entry_point=entry_point,
        typing_error=None,
        type_annotation=None,
        signature=typing.signature(returned, *job.argument_types),
        objectmode=False,
        lifted=(),
        fndesc=descriptor,
        library=library,
        call_helper=None,
        environment=root,
        metadata={},
        reload_init=(),
        referenced_envs=(),
    )
    return Artifact(
        job=job,
        configuration=configuration,
        result=result,
        symbol=symbol,
        c_symbol=None if entries is None else entries.value,
        address=engine.address(symbol),
        c_address=None if entries is None else engine.address(entries.value),
        digest=record["digest"],
        externals=externals,
        rounds=record["rounds"],
        object_code=zlib.compress(portable.object_code, 1),
        lifetime=lifetime,
        direct=_flag(record["direct"]) and entries is not None and entries.inlined,
        c_entries=entries,
        status_address=None if entries is None else engine.address(entries.status),
        last_status_address=None if entries is None else engine.address(entries.last_status),
        image=image,
        sources=sources,
        captures=captured,
    )


def _flag(data: Any) -> bool:
    if not isinstance(data, bool):
        raise Unstorable(f"{data!r} is neither true nor false")
    return data


def _reason(data: Any) -> str | None:
    if data is not None and not isinstance(data, str):
        raise Unstorable(f"{data!r} is no reason to keep code")
    return data


def _bind(symbols: list[str]) -> dict[str, int]:
    """Resolve external symbols in this process."""
    found: dict[str, int] = {}
    for prepare in (_nothing, numba_internals.declare_runtime_symbols, _refresh):
        missing = [one for one in symbols if one not in found]
        if not missing:
            break
        prepare()
        for symbol in missing:
            address = ll.address_of_symbol(symbol)
            if address is not None:
                found[symbol] = int(address)
    missing = [one for one in symbols if one not in found]
    if missing:
        raise Unstorable(f"this process has no {', '.join(missing)}")
    return found


def _nothing() -> None:
    """Do nothing."""


def _refresh() -> None:
    """Load all of Numba, as a compile does."""
    registry.cpu_target._toplevel_target_context.refresh()


def _environment(job: CompileJob, symbol: str, constants: list[Any]) -> Any:
    # Only object mode would look at the globals. It is not put into Numba's own table: names
    # carry counters, which start again in each process.
    environment = Environment(job.function.__globals__)
    environment.env_name = symbol
    environment.consts.extend(_value(one) for one in constants)
    return environment


def _fill(engine: Engine, object_file: ObjectFile, environments: Any) -> Iterator[Slot]:
    """Write the environments' addresses where the code looks for them."""
    for one in object_file.symbols:
        environment = environments.get(one.name)
        if environment is None:
            if one.name.startswith(numba_internals.ENVIRONMENT_PREFIX):
                raise Unstorable(f"{one.name} is an environment that was not written")
            continue
        if one.size != ctypes.sizeof(ctypes.c_void_p):
            raise Unstorable(f"{one.name} is not a place for an environment")
        address = engine.data_address(one.name)
        ctypes.c_void_p.from_address(address).value = id(environment)
        yield Slot(one.name, address, id(environment))


def _image(
    object_file: ObjectFile, engine: Engine, exported: frozenset[str], slots: tuple[Slot, ...]
) -> Image:
    commons = {one.name for one in object_file.symbols if one.section == "common"}

    def address_of(symbol: str) -> int:
        if symbol in exported:
            return engine.address(symbol)
        return engine.data_address(symbol) if symbol in commons else 0

    return replace(locate(object_file, address_of), slots=slots)


def _descriptor(job: CompileJob, returned: Any, record: dict[str, Any]) -> Any:
    function = job.function
    code = function.__code__

    def mangler(name: Any, *args: Any, **kwargs: Any) -> str:
        return str(record["symbol"])

    return funcdesc.PythonFunctionDescriptor(
        native=True,
        modname=function.__module__,
        qualname=function.__qualname__,
        unique_name=function.__qualname__,
        doc=function.__doc__ or "",
        typemap={},
        restype=types.none if returned is None else returned,
        calltypes={},
        args=code.co_varnames[: code.co_argcount],
        kws=(),
        mangler=mangler,
        argtypes=tuple(job.argument_types),
        env_name=record["root_environment"],
    )
