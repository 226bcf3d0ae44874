"""A schedule to look at: rows are ranks, columns are steps or moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vpp_ms.schedule.actions import Action
from vpp_ms.schedule.walk import Walk

SWEEP_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def cell(stage: int, micro_batch: int, num_ranks: int) -> str:
    """Sweep as a letter and the micro-batch: `a7` is micro-batch 7 on the first sweep."""
    return f"{SWEEP_LETTERS[stage // num_ranks % len(SWEEP_LETTERS)]}{micro_batch}"


def grid(
    actions: Sequence[Sequence[Action]], marks: Mapping[tuple[int, int], str] | None = None
) -> str:
    """One column per step, whatever it takes. `marks[rank, step]` is put before a cell; a mark
    behind the last step of a rank shows where something is missing.
    """
    marks = marks or {}
    num_ranks = len(actions)
    longest = max([len(row) for row in actions] + [step + 1 for _, step in marks])
    rows = []
    for rank, row in enumerate(actions):
        texts = [cell(a.stage, a.micro_batch, num_ranks) for a in row]
        texts += [""] * (longest - len(texts))
        rows.append([marks.get((rank, step), "") + text for step, text in enumerate(texts)])
    width = max((len(text) for row in rows for text in row), default=0)
    return _lines([" ".join(text.rjust(width) for text in row) for row in rows])


def time_grid(walk: Walk, columns: int = 120) -> str:
    """Columns are equal spans of time, `.` where a rank idles; a cell starts with its name."""
    start_s = min((a.start_s for a in walk.actions), default=0.0)
    scale = columns / walk.makespan_s if walk.makespan_s else 0.0
    num_ranks = walk.placement.num_ranks
    rows = [["."] * columns for _ in range(num_ranks)]
    for rank, stage, micro_batch, begin_s, end_s in walk.actions:
        first, end = round((begin_s - start_s) * scale), round((end_s - start_s) * scale)
        text = cell(stage, micro_batch, num_ranks).ljust(end - first, "-")[: end - first]
        rows[rank][first:end] = text
    return _lines(["".join(row) for row in rows])


def _lines(rows: Sequence[str]) -> str:
    digits = len(str(len(rows) - 1))
    return "\n".join(f"rank {rank:>{digits}} |{row.rstrip()}" for rank, row in enumerate(rows))
