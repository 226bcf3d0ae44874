"""The latency profile behind dynamic chunks: every rank times its own stages, all agree.

The samples are whole forwards at prefix 0, as the published chunkers take them, but of every
rank: the dearest rank sets the pace. A rank that cannot be profiled makes all fall back to
fixed chunks together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from vpp_ms.executor.compute import StageCompute
from vpp_ms.schedule.actions import MicroBatch, Segment

REPEATS = 3
FRACTIONS = (1.25, 1.125, 1.0, 0.875, 0.75, 0.625, 0.5)


def sample_sizes(chunk_tokens: int, max_tokens: int) -> list[int]:
    """Chunk sizes to time, around the base size; none longer than the KV pool holds."""
    sizes = {min(max(int(chunk_tokens * fraction), 1), max_tokens) for fraction in FRACTIONS}
    return sorted(sizes, reverse=True)


def time_stages(
    stages: Iterable[StageCompute], sizes: Sequence[int], block_size: int, num_stages: int
) -> list[float]:
    """Milliseconds that this rank needs for one chunk of each size (median of repeats)."""
    stages = list(stages)
    times_ms = []
    for size in sizes:
        blocks = tuple(range(-(-size // block_size)))
        probe = MicroBatch(0, (Segment(0, 0, size, blocks=blocks),), (0.0,) * num_stages)
        runs_s = []
        for _ in range(REPEATS):
            elapsed_s = 0.0
            for stage in stages:
                payload = stage.example_payload(size)
                start_s = time.perf_counter()
                stage.run(probe, payload)
                elapsed_s += time.perf_counter() - start_s
            runs_s.append(elapsed_s)
        times_ms.append(1e3 * median(runs_s))
    return times_ms


def encode_times(times_ms: list[float] | None) -> bytes:
    return msgspec.json.encode(times_ms)


def dearest(gathered: Sequence[bytes]) -> list[float] | None:
    """Per size the time of the slowest rank, or None when any rank could not be profiled."""
    per_rank = [msgspec.json.decode(data, type=list[float] | None) for data in gathered]
    if any(times is None for times in per_rank):
        return None
    return [max(times) for times in zip(*per_rank, strict=True)]
