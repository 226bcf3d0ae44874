"""Why ranks idled: every idle moment of a run has exactly one cause.

A rank's idle time is what its computes leave of the time from the run's first compute to its
last. The causes ask about *new work*: the next prefill micro-batch that the rank's first stage
has not run yet. A work-conserving rank that gets new work in time never idles. Of these, the
first that holds at an idle moment is its cause:

hop      The message that the rank's next compute needs is on the link to this rank.
fill     Before the rank's first compute: no work has reached it yet.
host     The next input lies on the rank already, or the rank is not waiting at all: between two
         computes it hands over, samples, feeds or wakes up.
drain    No new work is left for the rank, but prefill is still under way somewhere: what remains
         are later stages of micro-batches that have passed here before, or nothing.
decode   All prefill of the run is done: only sampled tokens are left, and each needs the one
         before it.
growth   New work is under way and takes longer upstream than all that the rank had to do
         meanwhile. Stages of unequal micro-batches meet: longer prefixes; also uneven stages.
arrival  New work would be here, had its request come earlier.
window   New work would be here, had rank 0 been allowed to inject it when it idled before it.

How late new work entered is read off rank 0: being work-conserving, it would have run the
micro-batch in its first wait behind the prefill injection before. So the micro-batch was late by
the time from that wait to its own start, and the window is to blame from the arrival on.

Each rank is read on its own clock; of other clocks only differences are used, and the start and
the end of the run and of its prefill. Without recorded segments every micro-batch counts as
prefill, so that waits for sampled tokens read as window.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.events import COMPUTE, RECV, WAIT, Event, Trace

FILL, DRAIN, GROWTH, HOP, WINDOW = "fill", "drain", "growth", "hop", "window"
DECODE, ARRIVAL, HOST = "decode", "arrival", "host"
CAUSES = (FILL, GROWTH, WINDOW, HOP, DRAIN, DECODE, ARRIVAL, HOST)


class Idle(NamedTuple):
    """Idle time of one cause. `stage` and `micro_batch` ran next; -1 behind the last compute."""

    rank: int
    cause: str
    start_s: float
    end_s: float
    stage: int
    micro_batch: int

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class _Late(NamedTuple):
    """By how much new work entered late: in all, and by the window's doing."""

    whole_s: float = 0.0
    window_s: float = 0.0


def idle_times(trace: Trace) -> tuple[Idle, ...]:
    """All idle time, by (rank, start_s), without overlap: it fills what computes leave."""
    computes = [trace.of(COMPUTE, rank) for rank in range(trace.num_ranks)]
    every = [event for events in computes for event in events]
    if not every:
        return ()
    start_s, end_s = min(e.start_s for e in every), max(e.end_s for e in every)
    cargo = Cargo.of(trace)
    prefill = sorted({e.micro_batch for e in every} - cargo.decode)
    known = set(prefill)
    prefilled_s = max((e.end_s for e in every if e.micro_batch in known), default=start_s)
    late = _lateness(computes[0], _spans(trace.of(WAIT, 0)), cargo)
    found: list[Idle] = []
    for rank, events in enumerate(computes):
        found += _Rank(trace, rank, events, prefill, prefilled_s, late).idle(start_s, end_s)
    return tuple(found)


def by_cause(idles: Iterable[Idle]) -> dict[str, float]:
    """Seconds summed over ranks, for every cause in the order of `CAUSES`."""
    parts: dict[str, list[float]] = {cause: [] for cause in CAUSES}
    for idle in idles:
        parts[idle.cause].append(idle.duration_s)
    return {cause: math.fsum(values) for cause, values in parts.items()}


Span = tuple[float, float]


class _Rank:
    """One rank's gaps. `prefill` are the indices of the run's prefill micro-batches, sorted."""

    def __init__(
        self,
        trace: Trace,
        rank: int,
        computes: tuple[Event, ...],
        prefill: list[int],
        prefilled_s: float,
        late: dict[int, _Late],
    ) -> None:
        self._rank, self._computes, self._late = rank, computes, late
        self._prefill, self._prefilled_s = prefill, prefilled_s
        self._waits = _spans(trace.of(WAIT, rank))
        self._received = {(e.stage + 1, e.micro_batch): e for e in trace.of(RECV, rank)}
        self._begun = {(e.stage, e.micro_batch): e.start_s for e in computes}
        self._first_stage = min((e.stage for e in computes), default=-1)

    def idle(self, start_s: float, end_s: float) -> Iterator[Idle]:
        free_s, num_new = start_s, 0
        for event in self._computes:
            if event.start_s > free_s:
                yield from self._split(free_s, event, num_new)
            free_s = max(free_s, event.end_s)
            is_new = num_new < len(self._prefill) and event.micro_batch == self._prefill[num_new]
            num_new += is_new and event.stage == self._first_stage
        if not self._computes:
            yield Idle(self._rank, FILL, start_s, end_s, -1, -1)
            return
        drained_s = min(max(free_s, self._prefilled_s), end_s)
        if drained_s > free_s:
            yield Idle(self._rank, DRAIN, free_s, drained_s, -1, -1)
        if end_s > drained_s:
            yield Idle(self._rank, DECODE, drained_s, end_s, -1, -1)

    def _split(self, start_s: float, after: Event, num_new: int) -> Iterator[Idle]:
        """The gap before `after`, cut where its cause changes; `num_new` prefills have begun."""
        recv = self._received.get((after.stage, after.micro_batch))
        new = self._prefill[num_new] if num_new < len(self._prefill) else None
        landed_s = self._landed_s(after)
        due_s = math.inf if new is None else self._due_s(new)
        late = _Late() if new is None else self._late.get(new, _Late())
        cuts = [landed_s, self._prefilled_s, due_s - late.whole_s, due_s - late.window_s]
        cuts += [] if recv is None else [recv.start_s, recv.end_s]
        cuts += _edges(self._waits, start_s, after.start_s)
        inner = sorted({cut for cut in cuts if start_s < cut < after.start_s})
        is_first = after is self._computes[0]
        found: Idle | None = None
        for from_s, to_s in zip([start_s, *inner], [*inner, after.start_s], strict=True):
            moment_s = (from_s + to_s) / 2
            if recv is not None and recv.start_s <= moment_s < recv.end_s:
                cause = HOP
            elif is_first:
                cause = FILL
            elif moment_s >= landed_s or not _within(self._waits, moment_s):
                cause = HOST
            elif new is None:
                cause = DRAIN if moment_s < self._prefilled_s else DECODE
            elif moment_s < due_s - late.whole_s:
                cause = GROWTH
            else:
                cause = ARRIVAL if moment_s < due_s - late.window_s else WINDOW
            if found is not None and found.cause == cause:
                found = found._replace(end_s=to_s)
                continue
            if found is not None:
                yield found
            found = Idle(self._rank, cause, from_s, to_s, after.stage, after.micro_batch)
        assert found is not None
        yield found

    def _landed_s(self, action: Event) -> float:
        """When the input lay on the rank; unknown (infinite) for what rank 0 injects."""
        recv = self._received.get((action.stage, action.micro_batch))
        if recv is not None:
            return recv.end_s
        is_local = (action.stage - 1, action.micro_batch) in self._begun
        return -math.inf if is_local else math.inf

    def _due_s(self, new: int) -> float:
        """When the first stage could begin its next new work."""
        recv = self._received.get((self._first_stage, new))
        if recv is not None:
            return recv.end_s
        return self._begun.get((self._first_stage, new), math.inf)


def _lateness(computes: tuple[Event, ...], waits: list[Span], cargo: Cargo) -> dict[int, _Late]:
    """For every prefill micro-batch but the first, from rank 0's computes and waits."""
    late: dict[int, _Late] = {}
    before_s: float | None = None
    for event in computes:
        if event.stage != 0 or event.micro_batch in cargo.decode:
            continue
        if before_s is not None:
            held_s = _first_wait_s(waits, before_s, event.start_s)
            if held_s is not None:
                known_s = max(held_s, cargo.known_s(event.micro_batch))
                window_s = max(0.0, event.start_s - known_s)
                late[event.micro_batch] = _Late(event.start_s - held_s, window_s)
        before_s = event.end_s
    return late


def _first_wait_s(waits: list[Span], from_s: float, to_s: float) -> float | None:
    """The start of the first wait between two moments."""
    index = bisect_left(waits, (from_s, -math.inf))
    if index < len(waits) and waits[index][0] < to_s:
        return waits[index][0]
    return None


def _spans(waits: tuple[Event, ...]) -> list[Span]:
    """Sorted; a rank's own waits never overlap."""
    return sorted((wait.start_s, wait.end_s) for wait in waits if wait.end_s > wait.start_s)


def _edges(spans: list[Span], start_s: float, end_s: float) -> list[float]:
    first = max(bisect_right(spans, (start_s, -math.inf)) - 1, 0)
    last = bisect_left(spans, (end_s, -math.inf))
    return [edge for span in spans[first:last] for edge in span]


def _within(spans: list[Span], moment_s: float) -> bool:
    index = bisect_right(spans, (moment_s, math.inf)) - 1
    return index >= 0 and moment_s < spans[index][1]
