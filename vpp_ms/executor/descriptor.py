"""The descriptor: a `MicroBatch` as bytes, the header of every message."""

from __future__ import annotations

import msgspec

from vpp_ms.schedule.actions import MicroBatch

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(MicroBatch)


def encode(micro_batch: MicroBatch) -> bytes:
    return _encoder.encode(micro_batch)


def decode(header: bytes) -> MicroBatch:
    """Raises msgspec.ValidationError when the two ranks run different versions."""
    return _decoder.decode(header)
