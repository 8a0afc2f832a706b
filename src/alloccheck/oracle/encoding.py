"""Values on their way between processes: scalars, tuples, lists, records, arrays as they lie.

Arrays keep their data type, shape, strides, alignment, writability and overlaps. Knows NumPy and
references; nothing of Numba or of the transport. Nothing is pickled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alloccheck.errors import UsageError
from alloccheck.oracle.counts import Remote
from alloccheck.oracle.references import (
    FunctionReference,
    Made,
    Parts,
    code_of,
    reference_of,
)

_ALIGNMENT = 4096
"""Regions keep their address modulo this, so that alignment and page crossings are the same."""

Json = Any


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values as a JSON-able description and the bytes that it refers to."""

    description: Json
    blobs: tuple[bytes, ...]


def encode(values: Sequence[Any]) -> Encoded:
    """Describe values so that `decode` builds equal ones elsewhere.

    Parameters
    ----------
    values : sequence
        None, bool, int, float, complex, str, bytes, NumPy scalars, records and arrays, tuples
        (named ones of modules, too), lists, functions of modules, `Made` and `Parts`.

    Raises
    ------
    UsageError
        When a value is of another kind, or an array holds Python objects.

    Examples
    --------
    >>> pair = np.arange(6.0)
    >>> a, b = decode(encode([pair[:4], pair[2:]]))
    >>> a[2] = 99.0
    >>> float(b[0])
    99.0
    """
    encoder = _Encoder()
    items = [encoder.value(v) for v in values]
    regions, blobs = encoder.regions()
    return Encoded({"values": items, "regions": regions}, blobs)


def decode(
    encoded: Encoded, make: Callable[[FunctionReference, tuple[Any, ...] | None], Any] | None = None
) -> list[Any]:
    """Build the values that `encode` described.

    Parameters
    ----------
    encoded : Encoded
        From `encode`.
    make : callable, optional
        Resolves functions: called with the reference and the factory's arguments, or None for the
        function itself.
    """
    memory = [
        _Region(blob, where)
        for blob, where in zip(encoded.blobs, encoded.description["regions"], strict=True)
    ]
    return [_decode(item, memory, make) for item in encoded.description["values"]]


class _Encoder:
    """Collects the memory that arrays share while values are described."""

    def __init__(self) -> None:
        self._arrays: list[tuple[dict[str, Json], np.ndarray[Any, Any], int, int]] = []

    def value(self, value: Any) -> Json:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return {"kind": "plain", "value": value}
        if kind is int:
            return {"kind": "int", "value": str(value)}
        if kind is float:
            return {"kind": "float", "value": value.hex()}
        if kind is complex:
            return {"kind": "complex", "value": [value.real.hex(), value.imag.hex()]}
        if kind is bytes:
            return {"kind": "bytes", "value": value.hex()}
        if kind is tuple or kind is list:
            return {"kind": kind.__name__, "items": [self.value(v) for v in value]}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {
                "kind": "namedtuple",
                "class": describe_reference(reference_of(kind)),
                "items": [self.value(v) for v in value],
            }
        if isinstance(value, np.generic):
            return self._scalar(value)
        if kind is np.ndarray or kind is np.recarray:
            return self._array(value)
        if kind is Parts:
            return {"kind": "parts", "items": [self.value(v) for v in value.values]}
        if kind is Remote:
            return {"kind": "remote", "value": value.text}
        if isinstance(value, FunctionReference):
            return {"kind": "function", "function": describe_reference(value)}
        if isinstance(value, Made):
            return {
                "kind": "made",
                "factory": describe_reference(value.factory),
                "items": [self.value(v) for v in value.arguments],
            }
        if callable(value) and code_of(value) is not None:
            return {"kind": "function", "function": describe_reference(reference_of(value))}
        raise UsageError(
            f"A value of type {kind.__module__}.{kind.__qualname__} cannot be sent to the "
            "measuring process. Pass made_by(factory, ...) with a module-level function that "
            "makes it there."
        )

    def _scalar(self, value: np.generic) -> Json:
        return {
            "kind": "scalar",
            "dtype": _describe_dtype(value.dtype),
            "record": isinstance(value, np.record),
            "value": value.tobytes().hex(),
        }

    def _array(self, array: np.ndarray[Any, Any]) -> Json:
        low = high = array.ctypes.data
        if array.size:
            for extent, stride in zip(array.shape, array.strides, strict=True):
                if stride < 0:
                    low += (extent - 1) * stride
                else:
                    high += (extent - 1) * stride
            high += array.itemsize
        item: dict[str, Json] = {
            "kind": "array",
            "dtype": _describe_dtype(array.dtype),
            "shape": list(array.shape),
            "strides": list(array.strides),
            "writable": bool(array.flags.writeable),
            "recarray": type(array) is np.recarray,
        }
        self._arrays.append((item, array, low, high))
        return item

    def regions(self) -> tuple[list[Json], tuple[bytes, ...]]:
        """Join overlapping arrays into regions, and tell each array its place in one."""
        regions: list[Json] = []
        blobs: list[bytes] = []
        waiting = sorted(self._arrays, key=lambda a: (a[2], a[3]))
        while waiting:
            low, high = waiting[0][2], waiting[0][3]
            together = 1
            while together < len(waiting) and waiting[together][2] < high:
                high = max(high, waiting[together][3])
                together += 1
            for item, array, _, _ in waiting[:together]:
                item["region"] = len(regions)
                item["offset"] = array.ctypes.data - low
            del waiting[:together]
            regions.append(low % _ALIGNMENT)
            blobs.append(ctypes.string_at(low, high - low) if high > low else b"")
        return regions, tuple(blobs)


class _Region:
    """Memory of this process that several arrays may share."""

    def __init__(self, content: bytes, remainder: int) -> None:
        self._owner = np.zeros(len(content) + 2 * _ALIGNMENT, np.uint8)
        start = (remainder - self._owner.ctypes.data) % _ALIGNMENT
        self._memory = self._owner[start : start + len(content)]
        self._memory[:] = np.frombuffer(content, np.uint8)

    def array(self, item: Mapping[str, Json], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        shape = tuple(item["shape"])
        strides = tuple(item["strides"])
        made: np.ndarray[Any, Any]
        if 0 in shape:
            # NumPy checks strides against the memory even when there are no elements to reach.
            empty = np.ndarray(shape, dtype)
            made = np.lib.stride_tricks.as_strided(empty, shape, strides)
        else:
            made = np.ndarray(shape, dtype, self._memory, item["offset"], strides)
        if item["recarray"]:
            made = made.view(np.recarray)
        if not item["writable"]:
            made.flags.writeable = False
        return made


def _decode(item: Mapping[str, Json], memory: Sequence[_Region], make: Any) -> Any:
    kind = item["kind"]
    if kind == "plain":
        return item["value"]
    if kind == "int":
        return int(item["value"])
    if kind == "float":
        return float.fromhex(item["value"])
    if kind == "complex":
        return complex(*(float.fromhex(part) for part in item["value"]))
    if kind == "bytes":
        return bytes.fromhex(item["value"])
    if kind == "remote":
        return Remote(item["value"])
    if kind in ("tuple", "list", "parts", "made"):
        items = [_decode(i, memory, make) for i in item["items"]]
        if kind == "parts":
            return Parts(tuple(items))
        if kind == "made":
            return _made(make, read_reference(item["factory"]), tuple(items))
        return tuple(items) if kind == "tuple" else items
    if kind == "namedtuple":
        items = [_decode(i, memory, make) for i in item["items"]]
        # Where classes cannot be resolved, a plain tuple is equal to it.
        return make(read_reference(item["class"]), None)(*items) if make else tuple(items)
    if kind == "function":
        return _made(make, read_reference(item["function"]), None)
    dtype = _read_dtype(item["dtype"])
    if kind == "scalar":
        if item["record"]:
            dtype = np.dtype((np.record, dtype))
        return np.ndarray((), dtype, bytearray.fromhex(item["value"]))[()]
    if kind == "array":
        return memory[item["region"]].array(item, dtype)
    raise UsageError(f"A value of kind {kind!r} is not part of this protocol")


def _made(make: Any, reference: FunctionReference, arguments: tuple[Any, ...] | None) -> Any:
    if make is None:
        raise UsageError(f"{reference} can only be made in the measuring process")
    return make(reference, arguments)


def describe_reference(reference: FunctionReference) -> Json:
    """Return a reference as JSON."""
    return [reference.module, reference.qualname, reference.path]


def read_reference(description: Json) -> FunctionReference:
    """Return the reference that `describe_reference` described."""
    module, qualname, path = description
    return FunctionReference(module, qualname, path)


def _describe_dtype(dtype: np.dtype[Any]) -> Json:
    if dtype.hasobject:
        raise UsageError(f"An array or scalar of {dtype} holds Python objects: it cannot be sent")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _describe_dtype(base), "shape": list(shape)}
    if dtype.names is None:
        return dtype.str
    assert dtype.fields is not None
    return {
        "names": list(dtype.names),
        "formats": [_describe_dtype(dtype.fields[n][0]) for n in dtype.names],
        "offsets": [dtype.fields[n][1] for n in dtype.names],
        "titles": [(*dtype.fields[n], None)[2] for n in dtype.names],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
        "record": dtype.type is np.record,
    }


def _read_dtype(description: Json) -> np.dtype[Any]:
    if isinstance(description, str):
        return np.dtype(description)
    if "base" in description:
        return np.dtype((_read_dtype(description["base"]), tuple(description["shape"])))
    made = np.dtype(
        {
            "names": description["names"],
            "formats": [_read_dtype(f) for f in description["formats"]],
            "offsets": description["offsets"],
            "titles": description["titles"],
            "itemsize": description["itemsize"],
        },
        align=description["aligned"],
    )
    return np.dtype((np.record, made)) if description["record"] else made
