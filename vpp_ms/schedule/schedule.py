"""`Schedule`: every rank's list of actions as data. Printed, hashed, read back and proved.

Text form: a header line, then one line per rank of `stage.micro_batch` in order of execution:

    schedule v 2 ranks 2 virtual stages
    rank 0: 0.0 0.1 3.0 3.1
    rank 1: 1.0 2.0 1.1 2.1
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.grid import grid
from vpp_ms.schedule.walk import Walk

_HEADER = re.compile(r"schedule (\w+) (\d+) ranks (\d+) virtual stages")
_LINE = re.compile(r"rank (\d+):((?: \d+\.\d+)*)")


class ScheduleError(PlanError):
    """A list of actions that is incomplete, out of order or would hang; shows the grid."""


@dataclass(frozen=True)
class Schedule:
    """`actions[rank]` in the order in which the rank runs them."""

    placement: Placement
    actions: tuple[tuple[Action, ...], ...]

    @classmethod
    def of_walk(cls, walk: Walk) -> Schedule:
        """The order that a walk in virtual time found."""
        lists: list[list[Action]] = [[] for _ in range(walk.placement.num_ranks)]
        for action in walk.actions:
            lists[action.rank].append(Action(action.stage, action.micro_batch))
        return cls(walk.placement, tuple(map(tuple, lists)))

    @property
    def num_micro_batches(self) -> int:
        return 1 + max((a.micro_batch for actions in self.actions for a in actions), default=-1)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.to_text().encode()).hexdigest()[:16]

    def to_text(self) -> str:
        p = self.placement
        lines = [f"schedule {p.kind} {p.num_ranks} ranks {p.virtual_stages} virtual stages"]
        for rank, actions in enumerate(self.actions):
            steps = "".join(f" {a.stage}.{a.micro_batch}" for a in actions)
            lines.append(f"rank {rank}:{steps}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """Reads `to_text`; blank lines are skipped. Raises ScheduleError naming the line.

        Does not prove the schedule: call `check`.
        """
        lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines or (header := _HEADER.fullmatch(lines[0][1])) is None:
            raise ScheduleError(
                "schedule line 1",
                repr(lines[0][1]) if lines else "empty",
                allowed="schedule KIND N ranks N virtual stages",
            )
        kind, num_ranks, virtual_stages = header.groups()
        placement = Placement(kind, int(num_ranks), int(virtual_stages))
        lists: list[tuple[Action, ...]] = []
        for number, line in lines[1:]:
            match = _LINE.fullmatch(line)
            if match is None or int(match[1]) != len(lists):
                raise ScheduleError(
                    f"schedule line {number}",
                    repr(line[:40]),
                    allowed=f"rank {len(lists)}: STAGE.MICRO_BATCH ...",
                )
            steps = (step.split(".") for step in match[2].split())
            lists.append(tuple(Action(int(stage), int(mb)) for stage, mb in steps))
        return cls(placement, tuple(lists))

    def check(self, num_micro_batches: int | None = None) -> None:
        """Proves that every stage runs every micro-batch once, in FIFO order, on its own rank,
        and that ranks that block on their next action all come to an end.

        Raises ScheduleError with the grid and the offending cell marked.
        """
        placement = self.placement
        if len(self.actions) != placement.num_ranks:
            raise ScheduleError(
                "schedule", f"{len(self.actions)} ranks", allowed=f"{placement.num_ranks} ranks"
            )
        count = self.num_micro_batches if num_micro_batches is None else num_micro_batches
        for rank in range(placement.num_ranks):
            self._check_rank(rank, count)
        self._check_progress()

    def grid(self, marks: Mapping[tuple[int, int], str] | None = None) -> str:
        """Rows are ranks, columns the order of execution; see `grid.grid`."""
        return grid(self.actions, marks or {})

    def _check_rank(self, rank: int, num_micro_batches: int) -> None:
        stages = self.placement.stages_of(rank)
        expected = dict.fromkeys(stages, 0)
        for step, action in enumerate(self.actions[rank]):
            stage, micro_batch = action
            if stage not in expected:
                owner = "no rank"
                if 0 <= stage < self.placement.num_stages:
                    owner = f"rank {self.placement.rank_of(stage)}"
                raise self._error(rank, step, f"stage {stage} belongs to {owner}")
            if micro_batch >= num_micro_batches or micro_batch < 0:
                raise self._error(rank, step, f"there are {num_micro_batches} micro-batches")
            if micro_batch < expected[stage]:
                raise self._error(rank, step, "run before, or out of order (FIFO per stage)")
            if micro_batch > expected[stage]:
                raise self._error(
                    rank, step, f"micro-batch {expected[stage]} must come first (FIFO per stage)"
                )
            expected[stage] += 1
        for stage, done in expected.items():
            if done < num_micro_batches:
                raise self._error(
                    rank,
                    len(self.actions[rank]),
                    f"stage {stage} runs {done} of {num_micro_batches} micro-batches",
                )

    def _check_progress(self) -> None:
        """Every rank runs its list and blocks where its next action is not ready."""
        placement, done = self.placement, [0] * self.placement.num_stages
        step = [0] * placement.num_ranks
        runnable = set(range(placement.num_ranks))
        while runnable:
            rank = runnable.pop()
            actions = self.actions[rank]
            while step[rank] < len(actions):
                stage, micro_batch = actions[step[rank]]
                if stage > 0 and done[stage - 1] <= micro_batch:
                    break
                done[stage] += 1
                step[rank] += 1
                if stage + 1 < placement.num_stages:
                    runnable.add(placement.rank_of(stage + 1))
            runnable.discard(rank)
        stuck = [r for r in range(placement.num_ranks) if step[r] < len(self.actions[r])]
        if stuck:
            raise self._error_at(
                [(rank, step[rank]) for rank in stuck],
                f"ranks {stuck} wait for each other for ever",
            )

    def _error(self, rank: int, step: int, reason: str) -> ScheduleError:
        return self._error_at([(rank, step)], reason)

    def _error_at(self, cells: Iterable[tuple[int, int]], reason: str) -> ScheduleError:
        cells = list(cells)
        rank, step = cells[0]
        actions = self.actions[rank]
        what = (
            "end" if step >= len(actions) else f"{actions[step].stage}.{actions[step].micro_batch}"
        )
        picture = self.grid(dict.fromkeys(cells, "!"))
        return ScheduleError(f"schedule rank {rank} step {step}", f"{what}, {reason}\n{picture}")
