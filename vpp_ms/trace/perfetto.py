"""A trace in Chrome's trace format, which ui.perfetto.dev opens: a track per rank and per link.

The exact times and fields of each event ride along in `args`, so that nothing is lost on the
way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vpp_ms.trace.events import COMPUTE, RECV, SEND, WAIT, Event, Trace

RANKS, LINKS = 0, 1  # process ids of the two groups of tracks


def to_perfetto(trace: Trace) -> dict[str, Any]:
    """The JSON document. Times of a track are microseconds, as the format demands.

    Payloads that are on one link at once get lanes below each other.
    """
    records: list[dict[str, Any]] = [
        _name("process_name", RANKS, 0, f"ranks ({trace.origin})"),
        _name("process_name", LINKS, 0, f"links ({trace.origin})"),
    ]
    for rank in range(trace.num_ranks):
        records.append(_name("thread_name", RANKS, rank, f"rank {rank}"))
        records.extend(_record(event, RANKS, rank) for event in _of_rank(trace, rank))
    track = 0
    for name, events in _by_link(trace.events).items():
        for lane, lane_events in enumerate(_lanes(events)):
            label = name if lane == 0 else f"{name} ({lane + 1})"
            records.append(_name("thread_name", LINKS, track, label))
            records.extend(_record(event, LINKS, track) for event in lane_events)
            track += 1
    return {
        "traceEvents": records,
        "displayTimeUnit": "ms",
        "otherData": {
            "num_ranks": trace.num_ranks,
            "origin": trace.origin,
            "meta": dict(trace.meta),
        },
    }


def from_perfetto(document: dict[str, Any]) -> Trace:
    """The trace behind `to_perfetto`. Raises KeyError or TypeError for anything else."""
    other = document["otherData"]
    events = [Event(**r["args"]) for r in document["traceEvents"] if r["ph"] == "X"]
    events.sort(key=lambda e: (e.start_s, e.rank))
    return Trace(other["num_ranks"], tuple(events), other["origin"], other["meta"])


def _of_rank(trace: Trace, rank: int) -> list[Event]:
    return [e for e in trace.events if e.rank == rank and e.kind in (COMPUTE, WAIT)]


def _by_link(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Messages by link and end; the sender's hand-over and the receiver's wait stay apart."""
    found: dict[tuple[int, int, int, str], list[Event]] = {}
    for event in events:
        if event.kind == SEND:
            key = (event.stage, event.rank, event.peer, SEND)
        elif event.kind == RECV:
            key = (event.stage, event.peer, event.rank, RECV)
        else:
            continue
        found.setdefault(key, []).append(event)
    return {
        f"stage {stage}: rank {source} to {target}, {kind}": found[stage, source, target, kind]
        for stage, source, target, kind in sorted(found)
    }


def _lanes(events: Sequence[Event]) -> list[list[Event]]:
    """Events that overlap never share a lane."""
    lanes: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.start_s):
        for lane in lanes:
            if lane[-1].end_s <= event.start_s:
                lane.append(event)
                break
        else:
            lanes.append([event])
    return lanes


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _record(event: Event, process: int, thread: int) -> dict[str, Any]:
    if event.kind == WAIT:
        name = "wait"
    elif event.kind == COMPUTE:
        name = f"stage {event.stage}, micro-batch {event.micro_batch}"
    else:
        name = f"micro-batch {event.micro_batch}"
    return {
        "ph": "X",
        "name": name,
        "cat": event.kind,
        "pid": process,
        "tid": thread,
        "ts": event.start_s * 1e6,
        "dur": event.duration_s * 1e6,
        "args": event._asdict(),
    }
