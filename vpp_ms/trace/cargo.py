"""What every micro-batch of a trace carried, in the trace's `meta`, so that the file is complete.

`meta["segments"][i]` lists micro-batch i's segments as [request, start, length, sample (0 or 1)];
`meta["requests"][r]` is request r's id; `meta["arrivals_s"][r]`, where there is one, is when it
became known. Older files have none of them and read as an empty `Cargo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.trace.events import Trace


def cargo_meta(
    micro_batches: Iterable[MicroBatch],
    requests: Sequence[str] = (),
    arrivals_s: Sequence[float] | None = None,
) -> dict[str, Any]:
    """The three entries of `meta` for micro-batches in order of their index."""
    meta: dict[str, Any] = {
        "segments": [
            [[s.request, s.start, s.length, int(s.sample)] for s in micro_batch.segments]
            for micro_batch in micro_batches
        ],
        "requests": list(requests),
    }
    if arrivals_s is not None:
        meta["arrivals_s"] = list(arrivals_s)
    return meta


@dataclass(frozen=True)
class Cargo:
    """`segments[i]` of micro-batch i; `decode` holds the micro-batches of sampled tokens alone."""

    segments: tuple[tuple[Segment, ...], ...] = ()
    requests: tuple[str, ...] = ()
    arrivals_s: tuple[float, ...] = ()
    decode: frozenset[int] = field(default=frozenset())

    @classmethod
    def of(cls, trace: Trace) -> Cargo:
        """Raises TypeError or ValueError where `meta` is not as above."""
        meta: Any = trace.meta
        segments = tuple(
            tuple(Segment(int(r), int(a), int(n), bool(s)) for r, a, n, s in row)
            for row in meta.get("segments", ())
        )
        return cls(
            segments,
            tuple(map(str, meta.get("requests", ()))),
            tuple(map(float, meta.get("arrivals_s", ()))),
            _decode(segments),
        )

    def known_s(self, micro_batch: int) -> float:
        """When the last of its requests had arrived; 0 when that was not recorded."""
        if micro_batch >= len(self.segments):
            return 0.0
        known = (s.request for s in self.segments[micro_batch] if s.request < len(self.arrivals_s))
        return max((self.arrivals_s[request] for request in known), default=0.0)

    def name(self, request: int) -> str:
        return self.requests[request] if request < len(self.requests) else str(request)


def _decode(segments: Sequence[Sequence[Segment]]) -> frozenset[int]:
    """A segment is decode when its request was sampled before: a prompt ends with a sample."""
    sampled: set[int] = set()
    found = set()
    for index, row in enumerate(segments):
        if row and all(segment.request in sampled for segment in row):
            found.add(index)
        sampled.update(segment.request for segment in row if segment.sample)
    return frozenset(found)
