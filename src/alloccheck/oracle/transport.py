"""Messages between the two processes: a JSON head and raw byte strings, each with its length.

Knows sockets and bytes; nothing of what the messages say. Nothing is unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_HEAD = struct.Struct("!4sIQ")
_MAGIC = b"acm1"


@dataclass(frozen=True, slots=True)
class Message:
    """One message: a JSON-able head and the byte strings that it refers to by index."""

    head: dict[str, Any]
    blobs: tuple[bytes, ...] = field(default=())


class ConnectionLost(Exception):
    """The other side is gone."""


def send(link: socket.socket, message: Message) -> None:
    """Send one message whole.

    Raises
    ------
    ConnectionLost
        When the other side is gone.
    """
    text = json.dumps({"head": message.head, "blobs": [len(b) for b in message.blobs]}).encode()
    try:
        link.sendall(_HEAD.pack(_MAGIC, len(text), sum(map(len, message.blobs))) + text)
        for blob in message.blobs:
            link.sendall(blob)
    except TimeoutError:
        raise
    except OSError as error:
        raise ConnectionLost(str(error)) from error


def receive(link: socket.socket) -> Message:
    """Receive one message whole.

    Raises
    ------
    ConnectionLost
        When the other side is gone or says something that is no message.
    TimeoutError
        When the socket's time is over.
    """
    magic, length, size = _HEAD.unpack(_exactly(link, _HEAD.size))
    if magic != _MAGIC:
        raise ConnectionLost(f"expected a message, found {magic!r}")
    envelope = json.loads(_exactly(link, length))
    sizes: Sequence[int] = envelope["blobs"]
    if sum(sizes) != size:
        raise ConnectionLost("a message's parts do not add up to its length")
    return Message(envelope["head"], tuple(bytes(_exactly(link, n)) for n in sizes))


def _exactly(link: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    done = 0
    while done < count:
        try:
            got = link.recv_into(view[done:])
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not got:
            raise ConnectionLost("the other side closed the connection")
        done += got
    return data
