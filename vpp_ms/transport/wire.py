"""What hub and members say to each other: msgspec messages behind a four-byte length."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import msgspec

MAX_MESSAGE_BYTES = 1 << 30
_LENGTH = struct.Struct("!I")


class Message(msgspec.Struct, tag=True, frozen=True):
    """Base of all messages; the type's name travels as its tag."""


class Hello(Message, frozen=True):
    """A process joins. `rank` is -1 for msrun's scheduler, which only watches."""

    rank: int
    num_ranks: int
    pid: int
    host: str
    run_key: str


class Gather(Message, frozen=True):
    """To the hub: this rank's part of the all-gather `name`."""

    name: str
    part: bytes


class Gathered(Message, frozen=True):
    """To every rank: all parts in rank order."""

    name: str
    parts: list[bytes]


class Report(Message, frozen=True):
    """One-way news for the hub's owner."""

    event: dict[str, Any]


class Trouble(Message, frozen=True):
    """A rank cannot go on: `text` is one line for the user. Ends the run."""

    text: str
    user_error: bool


class Goodbye(Message, frozen=True):
    """A member leaves in good order; the hub answers with the same."""


class Lost(Message, frozen=True):
    """The run is over: `who` ("rank 1") and what happened to it."""

    who: str
    what: str


ToHub = Hello | Gather | Report | Trouble | Goodbye
ToMember = Gathered | Goodbye | Lost

_encoder = msgspec.msgpack.Encoder()
decode_to_hub = msgspec.msgpack.Decoder(ToHub).decode
decode_to_member = msgspec.msgpack.Decoder(ToMember).decode


def frame(message: Message) -> bytes:
    body = _encoder.encode(message)
    assert len(body) <= MAX_MESSAGE_BYTES, f"{type(message).__name__} of {len(body)} bytes"
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises asyncio.IncompleteReadError at the end, ValueError when it is not ours."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_MESSAGE_BYTES:
        raise ValueError("not a message of vpp_ms")
    return await reader.readexactly(length)


def receive_frame(connection: socket.socket) -> bytes:
    """The same, blocking. Raises EOFError at the end of the connection."""
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return _receive_exactly(connection, length)


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel notice within about 15 s that the other host is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _receive_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        part = connection.recv(min(num_bytes - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
