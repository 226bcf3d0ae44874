"""The HTML page: template, style, scripts and data put into one file that needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.causes import CAUSES
from vpp_ms.trace.events import COMPUTE, RECV, Event, Trace
from vpp_ms.trace.report import palette
from vpp_ms.trace.report.figures import Figures, figures_of, median_error, pairs
from vpp_ms.trace.report.runs import ReportedRun

SCRIPTS = ("format.js", "view.js", "gantt.js", "bars.js", "charts.js", "main.js")
DIGITS = 7  # of a time: far below a pixel at any zoom


def render_page(runs: Sequence[ReportedRun]) -> str:
    """The whole page."""
    page = files("vpp_ms.trace.report") / "page"
    scripts = (page / name for name in SCRIPTS)
    parts = {
        "style": (page / "style.css").read_text(encoding="utf-8"),
        "script": "\n".join(script.read_text(encoding="utf-8") for script in scripts),
        # "<" never ends the script element early, and stays the same character for JSON.
        "data": json.dumps(page_data(runs), separators=(",", ":")).replace("<", "\\u003c"),
    }
    template = (page / "template.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def page_data(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """What the scripts draw: the palette, and every run's figures and events in columns."""
    return {
        "palette": {
            "sweeps": palette.SWEEPS,
            "requests": palette.REQUESTS,
            "packed": palette.PACKED,
            "prefix": palette.PREFIX,
            "runs": palette.RUNS,
            "causes": [
                {"name": name, "colour": palette.CAUSES[name], "words": palette.WORDS[name]}
                for name in CAUSES
            ],
        },
        "runs": [_run_data(run) for run in runs],
    }


def _run_data(run: ReportedRun) -> dict[str, Any]:
    figures = figures_of(run)
    data = _figures_data(run.name, figures)
    data["rounds"] = run.rounds
    data["median"] = dict(run.medians) or None
    if run.prediction is not None:
        found = pairs(run.prediction, run.trace)
        name = f"prediction of {run.name}"
        data["prediction"] = _figures_data(name, Figures.of(run.prediction))
        data["pairs"] = [[p.stage, p.micro_batch, p.predicted_s, p.actual_s] for p in found]
        data["median_error"] = median_error(found)
    return data


def _figures_data(name: str, figures: Figures) -> dict[str, Any]:
    trace, metrics = figures.trace, figures.metrics
    zero_s = figures.start_s
    return {
        "name": name,
        "origin": trace.origin,
        "layout": figures.layout,
        "verdict": figures.verdict(),
        "assumptions": figures.assumptions,
        "unit": figures.unit,
        "ranks": trace.num_ranks,
        "stages": figures.stages,
        "makespan": metrics.makespan_s,
        "tokens_per_s": figures.tokens_per_s,
        "prompt_tokens": figures.prompt_tokens,
        "bubble": metrics.bubble_ratio,
        "steady": metrics.bubble_ratio_steady,
        "busy": metrics.busy_s,
        "causes": [figures.causes_s[cause] for cause in CAUSES],
        "shown": [cause in figures.shares for cause in CAUSES],
        "compute": _columns(trace.of(COMPUTE), zero_s),
        "idle": {
            "rank": [idle.rank for idle in figures.idles],
            "cause": [CAUSES.index(idle.cause) for idle in figures.idles],
            "stage": [idle.stage for idle in figures.idles],
            "micro_batch": [idle.micro_batch for idle in figures.idles],
            "start": [_short(idle.start_s - zero_s) for idle in figures.idles],
            "end": [_short(idle.end_s - zero_s) for idle in figures.idles],
        },
        "transfers": _transfers(trace, zero_s),
        "layers": trace.meta.get("layers", []),
        "segments": _segments(figures.cargo),
        "requests": list(figures.cargo.requests),
        "chunks": [
            [c.micro_batch, c.request, c.prefix_tokens, c.tokens, _short(c.time_s)]
            for c in figures.chunks
        ],
    }


def _columns(events: Sequence[Event], zero_s: float) -> dict[str, list]:
    return {
        "rank": [e.rank for e in events],
        "stage": [e.stage for e in events],
        "micro_batch": [e.micro_batch for e in events],
        "start": [_short(e.start_s - zero_s) for e in events],
        "end": [_short(e.end_s - zero_s) for e in events],
    }


def _transfers(trace: Trace, zero_s: float) -> dict[str, list]:
    """Messages on their way to `rank`, behind `stage`."""
    events = trace.of(RECV)
    return {**_columns(events, zero_s), "bytes": [e.num_bytes for e in events]}


def _segments(cargo: Cargo) -> Iterable[list]:
    return [[[s.request, s.start, s.length] for s in row] for row in cargo.segments]


def _short(time_s: float) -> float:
    return float(f"{time_s:.{DIGITS}g}")
