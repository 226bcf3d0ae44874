"""The latency profile behind dynamic chunks: every rank times its own stages, all agree.

Whole chunks of several sizes, at prefix 0 and, so that the growth with the prefix is measured
and not inferred, at depth. The dearest rank sets the pace. A rank that cannot be profiled makes
all fall back to fixed chunks together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from vpp_ms.executor.compute import StageCompute
from vpp_ms.schedule.actions import MicroBatch, Segment

REPEATS = 3
SIZES = (1.25, 1.0, 0.875, 0.75, 0.625, 0.5)  # of the base chunk, at prefix 0
DEPTHS = (0.25, 0.5, 0.75)  # of the KV pool, for a chunk of the base size


class Sample(NamedTuple):
    """A chunk of `length` tokens behind a prefix of `start`."""

    start: int
    length: int


def samples(chunk_tokens: int, max_tokens: int) -> list[Sample]:
    """What to time, within a KV pool of `max_tokens`."""
    lengths = {min(max(int(chunk_tokens * share), 1), max_tokens) for share in SIZES}
    room = max(max_tokens - chunk_tokens, 0)
    starts = {int(room * share) for share in DEPTHS} - {0}
    at_depth = [Sample(start, min(chunk_tokens, max_tokens)) for start in sorted(starts)]
    return [Sample(0, length) for length in sorted(lengths, reverse=True)] + at_depth


def time_stages(
    stages: Sequence[StageCompute], chunks: Sequence[Sample], block_size: int, num_stages: int
) -> list[float]:
    """Milliseconds that this rank needs for each chunk (median of repeats)."""
    times_ms = []
    for chunk in chunks:
        probe = probe_of(chunk, block_size, num_stages)
        times_ms.append(1e3 * median(time_once(stages, probe) for _ in range(REPEATS)))
    return times_ms


def probe_of(chunk: Sample, block_size: int, num_stages: int) -> MicroBatch:
    """A micro-batch that is no request's: it writes the first blocks of an idle KV pool."""
    blocks = tuple(range(-(-(chunk.start + chunk.length) // block_size)))
    segment = Segment(-1, chunk.start, chunk.length, blocks=blocks)
    return MicroBatch(0, (segment,), (0.0,) * num_stages)


def time_once(stages: Sequence[StageCompute], probe: MicroBatch) -> float:
    """Seconds that the stages need for one micro-batch, whatever they had to touch first."""
    elapsed_s = 0.0
    for stage in stages:
        payload = stage.example_payload(probe.num_tokens)
        start_s = time.perf_counter()
        stage.run(probe, payload)
        elapsed_s += time.perf_counter() - start_s
    return elapsed_s


def encode_times(times_ms: list[float] | None) -> bytes:
    return msgspec.json.encode(times_ms)


def dearest(gathered: Sequence[bytes]) -> list[float] | None:
    """Per size the time of the slowest rank, or None when any rank could not be profiled."""
    per_rank = [msgspec.json.decode(data, type=list[float] | None) for data in gathered]
    if any(times is None for times in per_rank):
        return None
    return [max(times) for times in zip(*per_rank, strict=True)]
