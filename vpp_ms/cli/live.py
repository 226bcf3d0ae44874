"""What is seen while ranks work: a live view on a terminal, plain lines elsewhere.

Events are dicts with a `kind`: phase {rank, phase}, progress {chunks_done, chunks_total,
tokens_done, tokens_total, tokens_per_s, elapsed_s}, busy {rank, busy_share}, token {id, text}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

Event = dict[str, Any]
OnEvent = Callable[[Event], None]

PLAIN_EVERY_S = 5.0  # a plain line at most this often
ANSWER_CHARS = 600  # the tail of an answer that is shown while it grows


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[OnEvent]:
    """Yields the function that takes a run's events."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield PlainView(console).take
        return
    view = LiveView()
    with Live(view.render(), console=console, refresh_per_second=4, transient=True) as live:

        def take(event: Event) -> None:
            view.take(event)
            live.update(view.render())

        yield take


class Phases:
    """The phase each rank is in, and the slowest of them; only rank 0 knows when decode begins."""

    ORDER = ("load", "compile", "prefill", "decode")

    def __init__(self) -> None:
        self._of_rank: dict[int, str] = {}

    def enter(self, rank: int, phase: str) -> str | None:
        """The phase that all ranks known have now reached, if this changed it."""
        before = self.current
        self._of_rank[rank] = phase
        return self.current if self.current != before else None

    @property
    def current(self) -> str:
        if self._of_rank.get(0) == "decode":
            return "decode"
        phases = [p for p in self._of_rank.values() if p in self.ORDER]
        return min(phases, key=self.ORDER.index) if phases else "start"


class PlainView:
    """Lines for logs and pipes: phase changes, and progress every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._phases = console, Phases()
        self._last_s, self._busy = -PLAIN_EVERY_S, {}  # type: float, dict[int, float]

    def take(self, event: Event) -> None:
        kind = event["kind"]
        if kind == "phase":
            phase = self._phases.enter(event["rank"], event["phase"])
            if phase is not None:
                self._line(phase)
        elif kind == "busy":
            self._busy[event["rank"]] = event["busy_share"]
        elif kind == "progress":
            self._progress(event)

    def _progress(self, event: Event) -> None:
        if event["elapsed_s"] < self._last_s:  # the next run of a comparison
            self._last_s = -PLAIN_EVERY_S
        finished = event["chunks_done"] == event["chunks_total"]
        if not finished and event["elapsed_s"] - self._last_s < PLAIN_EVERY_S:
            return
        self._last_s = event["elapsed_s"]
        self._line(
            f"chunks {event['chunks_done']}/{event['chunks_total']}, "
            f"{event['tokens_done']}/{event['tokens_total']} tokens, "
            f"{event['tokens_per_s']:.0f} tokens/s{busy_text(self._busy)}"
        )

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """A bar of chunks, the ranks' busy shares and the growing answer."""

    def __init__(self) -> None:
        self._phases, self._busy = Phases(), {}  # type: Phases, dict[int, float]
        self._answers: dict[str, str] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("chunks  {task.fields[speed]}"),
            TimeElapsedColumn(),
        )
        self._task = self._bar.add_task("start", total=None, speed="")

    def take(self, event: Event) -> None:
        kind = event["kind"]
        if kind == "phase":
            self._phases.enter(event["rank"], event["phase"])
            self._bar.update(self._task, description=self._phases.current)
        elif kind == "progress":
            self._bar.update(
                self._task,
                completed=event["chunks_done"],
                total=event["chunks_total"],
                speed=f"{event['tokens_per_s']:.0f} tokens/s",
            )
        elif kind == "busy":
            self._busy[event["rank"]] = event["busy_share"]
        elif kind == "token":
            name = str(event["id"])
            self._answers[name] = self._answers.get(name, "") + event["text"]

    def render(self) -> Group:
        lines = [Text(busy_text(self._busy).lstrip(", "))] if self._busy else []
        answers = [
            Text(f"{name}: {text[-ANSWER_CHARS:]}", style="dim")
            for name, text in list(self._answers.items())[-3:]
        ]
        return Group(self._bar, *lines, *answers)


def busy_text(busy: dict[int, float]) -> str:
    """ ", busy: rank 0 97 %, rank 1 95 %", or nothing."""
    if not busy:
        return ""
    shares = ", ".join(f"rank {rank} {share:.0%}" for rank, share in sorted(busy.items()))
    return f", busy: {shares}"
