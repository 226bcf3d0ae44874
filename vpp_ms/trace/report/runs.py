"""What `vpp-ms report` is given, read: directories of runs and comparisons, and trace files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vpp_ms.errors import VppError
from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.events import COMPUTE, Trace
from vpp_ms.trace.io import read_trace

TRACE, RESULT, COMPARISON, PREDICTION = (
    "trace.json",
    "result.json",
    "compare.json",
    "prediction.json",
)


@dataclass(frozen=True)
class ReportedRun:
    """One run on the page. `name` is unique there.

    `result` is its result.json, if there is one. `medians` are a comparison's figures over
    `rounds` rounds, of which the trace is the newest. `prediction` is what a simulator expected
    of the same plan: a trace next to the run's own.
    """

    name: str
    trace: Trace
    result: Mapping[str, Any] = field(default_factory=dict)
    medians: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 1
    prediction: Trace | None = None


def load_runs(paths: Sequence[str | Path]) -> tuple[ReportedRun, ...]:
    """All runs of the paths given, in order. Raises VppError for what cannot be shown together."""
    found = [(Path(path), run) for path in paths for run in _load(Path(path))]
    _check_one_model(found)
    return tuple(_with_unique_names(found))


def _load(path: Path) -> Iterable[ReportedRun]:
    if path.is_file():
        trace = _trace(path)
        method = trace.meta.get("method")
        return [ReportedRun(str(method) if method else path.stem, trace)]
    if not path.exists():
        raise VppError(
            str(path),
            "no such file or directory",
            allowed="an output_dir of `vpp-ms run` or `vpp-ms compare`, or a trace file",
        )
    if (path / COMPARISON).exists():
        return _comparison(path)
    return [_run(path)]


def _run(directory: Path) -> ReportedRun:
    """The directory of one run: trace.json, and result.json and prediction.json if they exist."""
    if not (directory / TRACE).exists():
        ran = (directory / RESULT).exists()
        raise VppError(
            str(directory),
            f"no {TRACE}" if ran else f"neither {TRACE} nor {COMPARISON}",
            allowed="an output_dir of `vpp-ms run` or `vpp-ms compare`",
            hint="output.trace: true" if ran else None,
        )
    trace = _trace(directory / TRACE)
    result = _read_json(directory / RESULT) if (directory / RESULT).exists() else {}
    _check_same_run(directory, trace, result)
    predicted = directory / PREDICTION
    prediction = _trace(predicted) if predicted.exists() else None
    if prediction is not None and prediction.num_ranks != trace.num_ranks:
        raise VppError(
            str(predicted),
            f"a prediction for {prediction.num_ranks} ranks",
            allowed=f"{trace.num_ranks}, as in {TRACE}",
        )
    name = str(trace.meta.get("method") or directory.name)
    return ReportedRun(name, trace, result, prediction=prediction)


def _comparison(directory: Path) -> Iterable[ReportedRun]:
    path = directory / COMPARISON
    comparison = _read_json(path)
    try:
        rounds = int(comparison["rounds"])
        methods = {
            str(name): dict(entry["median"]) for name, entry in comparison["methods"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VppError(
            str(path), "not a comparison of this program", allowed="what `vpp-ms compare` wrote"
        ) from error
    for name, medians in methods.items():
        run = _run(directory / name)
        yield replace(run, name=name, medians=medians, rounds=rounds)


def _trace(path: Path) -> Trace:
    trace = read_trace(path)
    try:
        Cargo.of(trace)
    except (TypeError, ValueError) as error:
        raise VppError(str(path), "its segments, requests or arrivals cannot be read") from error
    if not trace.of(COMPUTE):
        raise VppError(str(path), "an empty trace: no rank computed anything")
    if any(not 0 <= event.rank < trace.num_ranks for event in trace.events):
        raise VppError(str(path), "events of more ranks than it says", allowed=trace.num_ranks)
    return trace


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VppError(str(path), error.strerror or "cannot be read") from error
    except ValueError as error:
        raise VppError(str(path), "not JSON, or cut off") from error
    if not isinstance(value, dict):
        raise VppError(str(path), "not what a run wrote", allowed="a JSON object")
    return value


def _check_same_run(directory: Path, trace: Trace, result: Mapping[str, Any]) -> None:
    ours, theirs = trace.meta.get("plan_hash"), result.get("plan_hash")
    if ours and theirs and ours != theirs:
        raise VppError(
            str(directory),
            f"{TRACE} is of plan {ours}, {RESULT} of plan {theirs}",
            allowed="files of one run",
            hint="run it again into an empty output_dir",
        )


def _check_one_model(found: Sequence[tuple[Path, ReportedRun]]) -> None:
    """Figures of different models side by side mislead; files that do not say pass."""
    known = [(path, run) for path, run in found if run.trace.meta.get("model")]
    for path, run in known[1:]:
        first_path, first = known[0]
        if run.trace.meta["model"] != first.trace.meta["model"]:
            raise VppError(
                str(path),
                f"model {run.trace.meta['model']}",
                allowed=f"{first.trace.meta['model']}, as in {first_path}",
                hint="one report per model",
            )


def _with_unique_names(found: Sequence[tuple[Path, ReportedRun]]) -> Iterable[ReportedRun]:
    """A name that occurs twice gets its directory in front, then a number behind."""
    names = [run.name for _, run in found]
    taken: set[str] = set()
    for path, run in found:
        name = run.name
        if names.count(name) > 1:
            place = path.parent.name if path.name == TRACE else path.stem
            name = f"{place}/{name}" if place not in ("", name) else name
        base, count = name, 1
        while name in taken:
            count += 1
            name = f"{base} ({count})"
        taken.add(name)
        yield replace(run, name=name)
