"""A walk in virtual time as a `Trace`, in the same events that a real rank records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vpp_ms.schedule.walk import Walk
from vpp_ms.trace.events import COMPUTE, RECV, SEND, SIMULATED, WAIT, Event, Trace


def trace_of_walk(
    walk: Walk, origin: str = SIMULATED, meta: Mapping[str, object] | None = None
) -> Trace:
    """Sends take no time of the rank; a receive lasts from the hand-over to the landing.

    A rank waits in every gap between 0 and the end of the run.
    """
    events = [
        Event(COMPUTE, a.rank, a.stage, a.micro_batch, a.start_s, a.end_s) for a in walk.actions
    ]
    for link, micro_batch, start_s, end_s, size in walk.transfers:
        stage, source, target = link.source_stage, link.source, link.target
        events.append(Event(SEND, source, stage, micro_batch, start_s, start_s, size, target))
        events.append(Event(RECV, target, stage, micro_batch, start_s, end_s, size, source))
    events.extend(_waits(walk))
    events.sort(key=lambda e: (e.start_s, e.rank))
    return Trace(walk.placement.num_ranks, tuple(events), origin, dict(meta or {}))


def _waits(walk: Walk) -> Iterator[Event]:
    end_s = max((a.end_s for a in walk.actions), default=0.0)
    free_s = [0.0] * walk.placement.num_ranks
    for action in walk.actions:
        if action.start_s > free_s[action.rank]:
            yield Event(WAIT, action.rank, -1, -1, free_s[action.rank], action.start_s)
        free_s[action.rank] = action.end_s
    for rank, last_s in enumerate(free_s):
        if end_s > last_s:
            yield Event(WAIT, rank, -1, -1, last_s, end_s)
