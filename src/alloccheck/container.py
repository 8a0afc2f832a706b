"""The file of one stored artifact: named parts behind a checksum. Knows bytes; nothing of meaning.

Layout, integers little-endian: 16 bytes `MAGIC`; SHA-256 of all that follows; length of the
header (8 bytes); the header, JSON in UTF-8; the parts, one after another, in the header's order.
The header is an object with ``parts`` (list of name and length) and ``record`` (anything).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alloccheck.errors import Unstorable

MAGIC = b"alloccheck.art/1"
_START = len(MAGIC) + 32
_BODY = _START + 8


@dataclass(frozen=True, slots=True)
class Container:
    """What a file holds.

    Parameters
    ----------
    record : dict
        Plain data.
    parts : mapping of str to bytes
        The rest.
    """

    record: dict[str, Any]
    parts: Mapping[str, bytes]


def to_bytes(container: Container) -> bytes:
    """Write a container.

    Parameters
    ----------
    container : Container
        Its record must be JSON data.

    Examples
    --------
    >>> data = to_bytes(Container({"answer": 42}, {"object": b"code"}))
    >>> from_bytes(data).record
    {'answer': 42}
    """
    parts = [[name, len(data)] for name, data in container.parts.items()]
    header = json.dumps(
        {"parts": parts, "record": container.record}, allow_nan=False, separators=(",", ":")
    ).encode()
    body = struct.pack("<Q", len(header)) + header + b"".join(container.parts.values())
    return MAGIC + hashlib.sha256(body).digest() + body


def from_bytes(data: bytes) -> Container:
    """Read what `to_bytes` wrote.

    Parameters
    ----------
    data : bytes
        A file's content, from wherever it comes.

    Raises
    ------
    Unstorable
        When it is not exactly such a file.

    Examples
    --------
    >>> from_bytes(b"something else")
    Traceback (most recent call last):
        ...
    alloccheck.errors.Unstorable: not a stored artifact
    """
    if not data.startswith(MAGIC) or len(data) < _BODY:
        raise Unstorable("not a stored artifact")
    if hashlib.sha256(data[_START:]).digest() != data[len(MAGIC) : _START]:
        raise Unstorable("damaged: the checksum is wrong")
    (length,) = struct.unpack("<Q", data[_START:_BODY])
    if length > len(data) - _BODY:
        raise Unstorable("damaged: the header is longer than the file")
    try:
        header = json.loads(data[_BODY : _BODY + length])
    except (ValueError, RecursionError) as error:
        raise Unstorable(f"damaged: the header is not JSON: {error}") from None
    if not isinstance(header, dict) or header.keys() != {"parts", "record"}:
        raise Unstorable("damaged: the header is not of this format")
    record, listed = header["record"], header["parts"]
    if not isinstance(record, dict) or not isinstance(listed, list):
        raise Unstorable("damaged: the header is not of this format")
    parts: dict[str, bytes] = {}
    place = _BODY + length
    for one in listed:
        if not isinstance(one, list) or [type(x) for x in one] != [str, int] or one[1] < 0:
            raise Unstorable("damaged: a part is not described as one")
        name, size = one
        if name in parts or size > len(data) - place:
            raise Unstorable("damaged: the parts do not fit the file")
        parts[name] = data[place : place + size]
        place += size
    if place != len(data):
        raise Unstorable("damaged: there is more than the parts")
    return Container(record, parts)
