"""What the planner tried and why it chose: the table below an automatic plan."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vpp_ms.sim.choice import Choice, describe
from vpp_ms.sim.problem import Prediction


def print_choice(console: Console, choice: Choice) -> None:
    """The alternatives, best last, and what no plan can beat."""
    console.print(_table(choice))
    for line in _reasons(choice):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(choice: Choice) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("alternative", "chunks", "seconds", "bubble", "over bound", "to best"):
        table.add_column(heading, justify="left" if heading == "alternative" else "right")
    for alternative in choice.alternatives:
        if alternative.at_least_s is not None:
            over = alternative.at_least_s / choice.best.makespan_s - 1.0
            at_least = f">= {alternative.at_least_s:.4g}"
            table.add_row(alternative.name, "", at_least, "", "", f">= {over:+.1%}")
        elif alternative.prediction is None:
            table.add_row(alternative.name, "", "refused", "", "", "")
        else:
            table.add_row(alternative.name, *_row(alternative.prediction, choice.best))
    table.add_row(f"chosen: {describe(choice.best)}", *_row(choice.best, choice.best))
    return table


def _row(prediction: Prediction, best: Prediction) -> Iterator[str]:
    yield str(prediction.sketch.num_micro_batches)
    yield f"{prediction.makespan_s:.4g}"
    yield f"{prediction.bubble_ratio:.1%}"
    yield f"{prediction.gap:+.1%}"
    yield f"{prediction.makespan_s / best.makespan_s - 1.0:+.1%}"


def _reasons(choice: Choice) -> Iterator[str]:
    best, problem = choice.best, choice.problem
    for alternative in choice.alternatives:
        if alternative.refused is not None:
            yield f"{alternative.name} cannot be: {alternative.refused}"
    yield (
        f"chosen among {choice.num_candidates} candidates, {choice.num_walks} of them walked; "
        f"times {problem.costs.origin}"
    )
    bound_s = best.sketch.bounds.makespan_s
    yield (
        f"this placement and these chunks cannot take less than {bound_s:.4g} s in any order; "
        f"no plan at all less than {problem.floor_s:.4g} s"
    )
