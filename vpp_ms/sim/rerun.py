"""`rerun`: a run that happened, walked again in the times that its trace measured.

Given its times, what ranks did is settled: who is injected when, and what each rank runs next.
So a rerun shows whether the simulator decides as ranks do: every list of actions must come out
as it was executed, and so does the time of every action.

Between two actions a rank is either waiting or about to choose. What it needs to choose and to
start counts as part of the action it starts; a message that lands meanwhile is there in time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from vpp_ms.errors import VppError
from vpp_ms.plan.placement import Link
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.walk import Hop, Walk
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.simulate import Simulatable, serve
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.events import COMPUTE, RECV, SEND, WAIT, Event, Trace

Key = tuple[int, int]  # (stage, micro-batch)


def rerun(trace: Trace, plan: Simulatable, believed: Costs) -> Walk:
    """`plan` must be the run's, and `believed` the costs that its rank 0 ordered by.

    Raises VppError for a trace in which a request was not served, or with other actions than
    a rerun takes.
    """
    times = _Times.of(trace)
    num_stages = plan.placement.num_stages

    def times_of(micro_batch: MicroBatch) -> tuple[float, ...]:
        try:
            return tuple(times.action_s[stage, micro_batch.index] for stage in range(num_stages))
        except KeyError as error:
            raise VppError("trace", f"action {error} was not executed") from None

    def hop_of(link: Link, micro_batch: MicroBatch) -> Hop:
        return times.hops[link.source_stage, micro_batch.index]

    return serve(plan, believed, _asks(Cargo.of(trace)), times_of, hop_of).walk


def _asks(cargo: Cargo) -> list[Ask]:
    prompts: dict[int, int] = {}
    samples: dict[int, int] = defaultdict(int)
    for segment in (segment for row in cargo.segments for segment in row):
        if segment.sample:
            samples[segment.request] += 1
            prompts.setdefault(segment.request, segment.start + segment.length)
    try:
        return [Ask(prompts[request], samples[request]) for request, _ in enumerate(cargo.requests)]
    except KeyError as error:
        raise VppError("trace", f"request {error} was not served") from None


@dataclass(frozen=True)
class _Times:
    """From the choice of an action to its hand-over; and each message's way from there."""

    action_s: Mapping[Key, float]
    hops: Mapping[Key, Hop]

    @classmethod
    def of(cls, trace: Trace) -> _Times:
        done_s: dict[Key, float] = {}
        chosen_s: dict[Key, float] = {}
        landed_s: dict[Key, float] = {}
        sent = {_key(event): event.end_s for event in trace.of(SEND)}
        for rank in range(trace.num_ranks):
            landings = sorted(trace.of(RECV, rank), key=lambda e: e.end_s)
            waits_end_s = sorted(event.end_s for event in trace.of(WAIT, rank))
            free_s = 0.0
            for action in trace.of(COMPUTE, rank):
                between = [e for e in landings if free_s < e.end_s <= action.start_s]
                waited = bisect_right(waits_end_s, free_s) < bisect_right(
                    waits_end_s, action.start_s
                )
                moment_s = between[-1].end_s if waited and between else free_s
                chosen_s[_key(action)] = moment_s
                landed_s |= {_key(event): moment_s for event in between}
                free_s = max(action.end_s, sent.get(_key(action), 0.0))
                done_s[_key(action)] = free_s
        hops = {
            _key(e): Hop(
                latency_s=max(landed_s.get(_key(e), e.end_s) - done_s[_key(e)], 0.0),
                num_bytes=e.num_bytes,
            )
            for e in trace.of(RECV)
            if _key(e) in done_s  # else it is the mark that ends the run
        }
        return cls({key: done_s[key] - chosen_s[key] for key in done_s}, hops)


def _key(event: Event) -> Key:
    return event.stage, event.micro_batch
