"""`replay`: a fixed schedule in virtual time, each rank blocking on its next action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import TimedAction, Walk


def replay(schedule: Schedule, times_nS: Sequence[Sequence[float]] | np.ndarray) -> Walk:
    """When each action of a checked schedule runs, with free hops and no window.

    An action starts when its rank is free, the stage before has ended its micro-batch and the
    stage itself the micro-batch before. Raises ScheduleError where ranks would wait for ever.
    """
    schedule.check(len(times_nS))
    placement = schedule.placement
    end_s: dict[tuple[int, int], float] = {}
    free_s = [0.0] * placement.num_ranks
    step = [0] * placement.num_ranks
    actions: list[TimedAction] = []
    runnable = set(range(placement.num_ranks))
    while runnable:
        rank = runnable.pop()
        mine = schedule.actions[rank]
        while step[rank] < len(mine):
            stage, micro_batch = mine[step[rank]]
            if stage > 0 and (stage - 1, micro_batch) not in end_s:
                break
            start_s = max(free_s[rank], end_s.get((stage - 1, micro_batch), 0.0))
            free_s[rank] = start_s + float(times_nS[micro_batch][stage])
            end_s[stage, micro_batch] = free_s[rank]
            actions.append(TimedAction(rank, stage, micro_batch, start_s, free_s[rank]))
            step[rank] += 1
            if stage + 1 < placement.num_stages:
                runnable.add(placement.rank_of(stage + 1))
        runnable.discard(rank)
    actions.sort(key=lambda a: (a.start_s, a.rank))
    last = placement.num_stages - 1
    done_s = tuple(end_s[last, micro_batch] for micro_batch in range(len(times_nS)))
    return Walk(placement, tuple(actions), (), done_s)
