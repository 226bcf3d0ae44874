"""How busy every rank was. One rank's durations come from that rank's own clock alone."""

from __future__ import annotations

from dataclasses import dataclass

from vpp_ms.trace.events import COMPUTE, SEND, WAIT, Event, Trace


@dataclass(frozen=True)
class Metrics:
    """Per-rank tuples are indexed by rank.

    `bubble_ratio` = 1 - sum(busy) / (P * makespan), from the first compute's start to the last
    one's end, fill and drain included. `bubble_ratio_steady` counts only from when the last rank
    has started its first compute until the first rank ends its last; None when these do not
    overlap. `wait_send_s` is the time that handing messages over took.
    """

    makespan_s: float
    bubble_ratio: float
    bubble_ratio_steady: float | None
    busy_s: tuple[float, ...]
    wait_recv_s: tuple[float, ...]
    wait_send_s: tuple[float, ...]


def measure(trace: Trace) -> Metrics:
    """The figures of one run; zeros for a run without any compute."""
    compute, wait, send = (_per_rank(trace, kind) for kind in (COMPUTE, WAIT, SEND))
    busy_s = tuple(map(_total_s, compute))
    every = [event for events in compute for event in events]
    makespan_s = bubble = 0.0
    if every:
        makespan_s = max(e.end_s for e in every) - min(e.start_s for e in every)
    if makespan_s > 0.0:
        bubble = 1.0 - sum(busy_s) / (trace.num_ranks * makespan_s)
    return Metrics(
        makespan_s=makespan_s,
        bubble_ratio=bubble,
        bubble_ratio_steady=_steady(compute),
        busy_s=busy_s,
        wait_recv_s=tuple(map(_total_s, wait)),
        wait_send_s=tuple(map(_total_s, send)),
    )


def _per_rank(trace: Trace, kind: str) -> list[list[Event]]:
    found: list[list[Event]] = [[] for _ in range(trace.num_ranks)]
    for event in trace.events:
        if event.kind == kind:
            found[event.rank].append(event)
    return found


def _total_s(events: list[Event]) -> float:
    return sum(event.end_s - event.start_s for event in events)


def _steady(compute: list[list[Event]]) -> float | None:
    if not all(compute):
        return None
    start_s = max(events[0].start_s for events in compute)
    end_s = min(max(e.end_s for e in events) for events in compute)
    if end_s <= start_s:
        return None
    busy_s = sum(
        max(0.0, min(e.end_s, end_s) - max(e.start_s, start_s))
        for events in compute
        for e in events
    )
    return 1.0 - busy_s / (len(compute) * (end_s - start_s))
