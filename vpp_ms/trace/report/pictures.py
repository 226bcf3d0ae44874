"""The page's pictures as PNG files for papers, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vpp_ms.errors import VppError
from vpp_ms.trace.causes import CAUSES
from vpp_ms.trace.events import COMPUTE, Trace
from vpp_ms.trace.report.figures import Chunk, Figures, figures_of, pairs
from vpp_ms.trace.report.palette import CAUSES as CAUSE_COLOURS
from vpp_ms.trace.report.palette import RUNS, SWEEPS
from vpp_ms.trace.report.runs import ReportedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, DPI = 10.0, 200
HATCH = "/////"


def write_pictures(runs: Sequence[ReportedRun], directory: Path) -> tuple[Path, ...]:
    """bubble.png and gantt.png of all runs; chunks.png and prediction.png where known.

    Raises VppError without matplotlib.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise VppError(
            "--png", "matplotlib is not installed", hint="pip install matplotlib"
        ) from error
    named = [(run.name, figures_of(run)) for run in runs]
    pictures = {"bubble.png": _bubble(named), "gantt.png": _gantts(runs)}
    if any(figures.chunks for _, figures in named):
        pictures["chunks.png"] = _chunks(named)
    if any(run.prediction for run in runs):
        pictures["prediction.png"] = _predictions([run for run in runs if run.prediction])
    directory.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        figure.savefig(directory / name, dpi=DPI)
    return tuple(directory / name for name in pictures)


def _bubble(named: Sequence[tuple[str, Figures]]) -> Figure:
    """A bar per run: time per rank on average, work first, then idle time by cause."""
    figure = _figure(1.1 + 0.5 * len(named))
    axes = figure.subplots()
    for y, (_, figures) in enumerate(named):
        ranks = figures.trace.num_ranks
        left = sum(figures.metrics.busy_s) / ranks
        axes.barh(y, left, color=SWEEPS[0], height=0.7)
        axes.text(left / 50, y, f"work {_share(figures)}", color="white", va="center")
        for cause in CAUSES:
            mean_s = figures.causes_s[cause] / ranks
            axes.barh(y, mean_s, left=left, height=0.7, **_hatched(cause))
            left += mean_s
        axes.text(left, y, f"  {figures.verdict()}", va="center", fontsize=8)
    axes.set_yticks(range(len(named)), [f"{name}\n({f.trace.origin})" for name, f in named])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(figures.metrics.makespan_s for _, figures in named))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"makespan [{named[0][1].unit}], mean over ranks")
    _legend(figure, [figures for _, figures in named], sweeps=1)
    return figure


def _gantts(runs: Sequence[ReportedRun]) -> Figure:
    """A chart per run, and below it what was predicted of it, all on one time axis."""
    charts = []
    for run in runs:
        charts.append((run.name, figures_of(run)))
        if run.prediction is not None:
            charts.append((f"prediction of {run.name}", Figures.of(run.prediction)))
    ranks = [figures.trace.num_ranks for _, figures in charts]
    figure = _figure(0.9 + sum(0.75 + 0.24 * number for number in ranks))
    column = figure.subplots(
        len(charts), sharex=True, squeeze=False, gridspec_kw={"height_ratios": ranks}
    )[:, 0]
    for axes, (name, figures) in zip(column, charts, strict=True):
        _gantt(axes, figures)
        axes.set_title(
            f"{name} ({figures.trace.origin}): {figures.layout}, {figures.verdict()}",
            fontsize=9,
            loc="left",
        )
    column[-1].set_xlim(0, max(figures.metrics.makespan_s for _, figures in charts))
    column[-1].set_xlabel(f"time [{charts[-1][1].unit}]")
    sweeps = max(round(figures.stages / figures.trace.num_ranks) for _, figures in charts)
    _legend(figure, [figures for _, figures in charts], sweeps=sweeps)
    return figure


def _gantt(axes: Axes, figures: Figures) -> None:
    trace, zero_s = figures.trace, figures.start_s
    idle_spans: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for idle in figures.idles:
        spans = idle_spans.setdefault((idle.rank, idle.cause), [])
        spans.append((idle.start_s - zero_s, idle.duration_s))
    for (rank, cause), spans in idle_spans.items():
        axes.broken_barh(spans, (rank - 0.42, 0.84), **_hatched(cause))
    for rank in range(trace.num_ranks):
        for sweep in range(-(-figures.stages // trace.num_ranks)):
            spans = [
                (event.start_s - zero_s, event.duration_s)
                for event in trace.of(COMPUTE, rank)
                if event.stage // trace.num_ranks == sweep
            ]
            colour = SWEEPS[sweep % len(SWEEPS)]
            axes.broken_barh(
                spans, (rank - 0.42, 0.84), color=colour, edgecolor="white", linewidth=0.3
            )
    step = -(-trace.num_ranks // 16)
    axes.set_yticks(range(0, trace.num_ranks, step))
    axes.set_ylim(trace.num_ranks - 0.5, -0.5)
    axes.set_ylabel("rank")


def _chunks(named: Sequence[tuple[str, Figures]]) -> Figure:
    figure = _figure(3.4)
    sizes, times = figure.subplots(1, 2)
    for index, (name, figures) in enumerate(named):
        label = f"{name} ({figures.trace.origin})"
        for number, chunks in enumerate(_by_request(figures.chunks)):
            style = {
                "color": RUNS[index % len(RUNS)],
                "marker": "o",
                "markersize": 3,
                "linewidth": 1,
                "label": label if number == 0 else None,
            }
            prefixes = [chunk.prefix_tokens for chunk in chunks]
            sizes.plot(prefixes, [chunk.tokens for chunk in chunks], **style)
            times.plot(prefixes, [chunk.time_s for chunk in chunks], **style)
    for axes, title in (
        (sizes, "chunk size [tokens]"),
        (times, f"chunk time, mean over ranks [{named[0][1].unit}]"),
    ):
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("tokens of the request before the chunk")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
    sizes.legend(fontsize=8, frameon=False)
    return figure


def _predictions(runs: Sequence[ReportedRun]) -> Figure:
    figure = _figure(3.6)
    row = figure.subplots(1, len(runs), squeeze=False)[0]
    for axes, run in zip(row, runs, strict=True):
        assert run.prediction is not None
        found = pairs(run.prediction, run.trace)
        axes.scatter(
            [pair.predicted_s for pair in found],
            [pair.actual_s for pair in found],
            s=10,
            alpha=0.6,
            color=RUNS[0],
        )
        end = max((max(pair[2:]) for pair in found), default=1.0)
        axes.plot([0, end], [0, end], color="#8a96a3", linewidth=1)
        axes.set_title(f"{run.name}: a dot per compute", fontsize=10, loc="left")
        axes.set_xlabel(_axis(run.prediction))
        axes.set_ylabel(_axis(run.trace))
    return figure


def _figure(height_in: float) -> Figure:
    """Outside pyplot: no window, no state that is kept."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _legend(figure: Figure, shown: Sequence[Figures], sweeps: int) -> None:
    from matplotlib.patches import Patch

    words = [f"sweep {number + 1}" for number in range(sweeps)] if sweeps > 1 else ["work"]
    entries = [
        Patch(color=SWEEPS[number % len(SWEEPS)], label=word) for number, word in enumerate(words)
    ]
    entries += [
        Patch(label=cause, **_hatched(cause))
        for cause in CAUSES
        if any(cause in figures.shares for figures in shown)
    ]
    figure.legend(
        handles=entries, loc="outside upper left", ncols=len(entries), fontsize=8, frameon=False
    )


def _hatched(cause: str) -> dict:
    from matplotlib.colors import to_rgb

    colour = CAUSE_COLOURS[cause]
    pale = tuple(0.45 * part + 0.55 for part in to_rgb(colour))
    return {"facecolor": pale, "edgecolor": colour, "hatch": HATCH, "linewidth": 0}


def _by_request(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    found: dict[int, list[Chunk]] = {}
    for chunk in sorted(chunks, key=lambda c: c.prefix_tokens):
        found.setdefault(chunk.request, []).append(chunk)
    return list(found.values())


def _share(figures: Figures) -> str:
    return f"{1 - figures.metrics.bubble_ratio:.1%}"


def _axis(trace: Trace) -> str:
    return f"{trace.origin} [{trace.meta.get('time_unit', 's')}]"
