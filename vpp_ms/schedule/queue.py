"""`RankQueue`: the dependency rule and the order rule, walked by simulator and ranks alike.

An action (stage, micro-batch) is ready once the stage before has handed the micro-batch over
and the stage itself has finished the micro-batch before (FIFO). So a rank's ready actions are
the heads of one queue per local stage, and the order rule is a choice among these heads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from vpp_ms.schedule.actions import Action, MicroBatch


class RankQueue:
    """Ready actions of one rank: never idle while one exists (work-conserving)."""

    def __init__(self, stages: Iterable[int]) -> None:
        self._inbox: dict[int, deque[MicroBatch]] = {stage: deque() for stage in stages}
        self._next_index = dict.fromkeys(self._inbox, 0)
        self._num_ready = 0

    def put(self, stage: int, micro_batch: MicroBatch) -> None:
        """`stage` may now run `micro_batch`; the stage before has handed it over."""
        expected = self._next_index[stage]
        assert micro_batch.index == expected, (
            f"FIFO broken: stage {stage} was handed micro-batch {micro_batch.index}, not {expected}"
        )
        self._next_index[stage] = expected + 1
        self._inbox[stage].append(micro_batch)
        self._num_ready += 1

    def pop(self) -> tuple[Action, MicroBatch] | None:
        """The ready action of greatest priority; ties go to the oldest, then the later stage."""
        if not self._num_ready:
            return None
        best: tuple[float, int, int] | None = None
        for stage, inbox in self._inbox.items():
            if inbox:
                head = inbox[0]
                urgency = (head.priority[stage], -head.index, stage)
                if best is None or urgency > best:
                    best = urgency
        assert best is not None
        stage = best[2]
        self._num_ready -= 1
        micro_batch = self._inbox[stage].popleft()
        return Action(stage, micro_batch.index), micro_batch

    def __len__(self) -> int:
        return self._num_ready
