"""Three models on 16 devices: long prompts, a stream, mixed and short prompts, by device card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.paper.shaped import K, table
from vpp_ms.errors import PlanError
from vpp_ms.sim.candidates import named
from vpp_ms.sim.choice import describe
from vpp_ms.sim.planner import choose
from vpp_ms.sim.problem import Prediction, Problem
from vpp_ms.sim.scenario import Scenario, load_scenario
from vpp_ms.sim.simulate import simulate
from vpp_ms.sim.workload import Ask, make_workload
from vpp_ms.trace import Metrics, measure
from vpp_ms.trace.report.pictures import write_pictures
from vpp_ms.trace.report.runs import ReportedRun

FOLDER = Path("yaml_configs/paper")
MODELS = {
    "deepseek_v31": "DeepSeek-V3.1",
    "qwen3_235b": "Qwen3-235B-A22B",
    "glm_45": "GLM-4.5",
}
LAYOUTS = ("pp2_tp8", "pp4_tp4", "pp8_tp2", "pp16")
WINDOW = 64  # micro-batches in flight, the same for all methods


def long_prompts(lengths: tuple[int, ...] = (128 * K, 512 * K, 1024 * K)) -> str:
    """Predicted tokens/s of one prompt, best chunk size of each method."""
    rows = []
    for model, name in MODELS.items():
        for layout in LAYOUTS:
            scenario = load_scenario(FOLDER / f"{model}_{layout}.yaml")
            rows += [_long_row(f"{name}, {layout}", scenario, length) for length in lengths]
    return table(
        ["model, layout", "tokens", "cpp", "dcpp", "vpp", "auto", "over dcpp", "bubble", "plan"],
        rows,
    )


def _long_row(name: str, scenario: Scenario, length: int) -> list[str]:
    asks = (Ask(length),)
    head = [name, f"{length // K}K"]
    try:
        best = choose(scenario.problem(asks)).best
    except PlanError as error:
        got = str(error.got).split(" (")[0]
        return [*head, *[""] * 6, f"does not fit: {got} on a device"]
    tuned = {
        "cpp": _tuned(scenario, asks, "plain", 1, "fixed"),
        "dcpp": _tuned(scenario, asks, "plain", 1, "dynamic"),
        "vpp": _tuned(scenario, asks, "v", 2, "fixed"),
    }
    rates = ["-" if p is None else f"{length / p.makespan_s:.0f}" for p in tuned.values()]
    over = "-"
    if tuned["dcpp"] is not None:
        over = f"{tuned['dcpp'].makespan_s / best.makespan_s - 1.0:+.1%}"
    return [
        *head,
        *rates,
        f"**{length / best.makespan_s:.0f}**",
        over,
        f"{best.bubble_ratio:.1%}",
        describe(best),
    ]


def _tuned(
    scenario: Scenario, asks: tuple[Ask, ...], kind: str, v: int, how: str
) -> Prediction | None:
    """A method at its best chunk size; None where none fits into memory."""
    given = _with(scenario, {"placement": kind, "virtual_stages": v}, {"method": how})
    try:
        return choose(given.problem(asks)).best
    except PlanError:
        return None


def _with(scenario: Scenario, vpp: dict[str, Any], chunking: dict[str, Any]) -> Scenario:
    return scenario.model_copy(
        update={
            "vpp": scenario.vpp.model_copy(update=vpp),
            "chunking": scenario.chunking.model_copy(update=chunking),
        }
    )


def _windowed(scenario: Scenario) -> Scenario:
    window = scenario.vpp.window.model_copy(update={"micro_batches": WINDOW})
    return _with(scenario, {"window": window}, {})


@dataclass(frozen=True)
class StreamResult:
    """The planner's plan for one scenario; idle shares of a stream."""

    place: str
    bubble: float
    steady: float
    busiest: float


def streams() -> tuple[str, list[StreamResult]]:
    """16 prompts of 512K back to back: bubbles with and without fill and drain."""
    asks = make_workload("stream", prompt_tokens=512 * K, count=16)
    places = [f"deepseek_v31_{layout}" for layout in LAYOUTS]
    places += ["qwen3_235b_pp2_tp8", "qwen3_235b_pp4_tp4", "glm_45_pp4_tp4"]
    rows, results = [], []
    for place in places:
        scenario = _windowed(load_scenario(FOLDER / f"{place}.yaml"))
        found = list(_stream_rows(place, scenario, asks))
        rows += [cells for cells, _ in found]
        results.append(found[-1][1])  # the planner's comes last
    headings = ["scenario", "method", "tokens/s", "bubble", "steady"]
    return table([*headings, "layers uneven by", "busiest idles"], rows), results


def _stream_rows(
    place: str, scenario: Scenario, asks: tuple[Ask, ...]
) -> Iterator[tuple[list[str], StreamResult]]:
    problem = scenario.problem(asks)
    best = choose(problem).best
    swept = _tuned(scenario, asks, "plain", 1, "dynamic")
    methods = {**_named(problem), "dcpp swept": swept, f"auto: {describe(best)}": best}
    for name, prediction in methods.items():
        if prediction is None:
            yield [place, name, "does not fit", "", "", "", ""], StreamResult(place, 1, 1, 1)
            continue
        metrics = measure(simulate(prediction.sketch.plan, problem.costs, problem.asks))
        steady = metrics.bubble_ratio_steady
        result = StreamResult(
            place,
            metrics.bubble_ratio,
            1.0 if steady is None else steady,
            1.0 - max(metrics.busy_s) / metrics.makespan_s,
        )
        rate = f"{sum(problem.lengths) / metrics.makespan_s:.0f}"
        shares = (result.bubble, result.steady, _unevenness(metrics), result.busiest)
        yield [place, name, rate, *(f"{share:.2%}" for share in shares)], result


def pictures(directory: Path, place: str = "deepseek_v31_pp4_tp4") -> Sequence[Path]:
    """One prompt of 512K tokens: bubbles by cause, and Gantt charts of plain, dynamic, planned."""
    problem = load_scenario(FOLDER / f"{place}.yaml").problem((Ask(512 * K),))
    shown = {
        name: prediction
        for name, prediction in _named(problem).items()
        if name.split(" (")[0] in ("cpp", "dcpp sglang", "vpp")
    }
    best = choose(problem).best
    shown[f"auto: {describe(best)}"] = best
    runs = [
        ReportedRun(name, simulate(prediction.sketch.plan, problem.costs, problem.asks))
        for name, prediction in shown.items()
        if prediction is not None
    ]
    return [p for p in write_pictures(runs, directory) if p.stem in ("bubble", "gantt", "chunks")]


def _named(problem: Problem) -> dict[str, Prediction | None]:
    """The named methods as a user gets them; where 32K does not fit, at half of it and so on."""
    found: dict[str, Prediction | None] = {}
    for name, config in named(problem.config).items():
        found[name] = None
        for size in (32 * K, 16 * K, 8 * K, 4 * K):
            smaller = config.chunking.model_copy(update={"chunk_tokens": size})
            try:
                sketch = problem.sketch(config.model_copy(update={"chunking": smaller}))
            except PlanError:
                continue
            label = name if size == 32 * K else f"{name} ({size // K}K chunks)"
            found.pop(name, None)
            found[label] = problem.predict(sketch)
            break
    return found


def _unevenness(metrics: Metrics) -> float:
    """The bubble that whole layers cost: no schedule can fill it."""
    return 1.0 - sum(metrics.busy_s) / (len(metrics.busy_s) * max(metrics.busy_s))


@dataclass
class CrowdGains:
    """How much more throughput the planner's plans have, in share, one entry per row."""

    swept: list[float] = field(default_factory=list)
    named: dict[str, list[float]] = field(default_factory=dict)


def crowds(kind: str, prompt_tokens: int, seeds: Sequence[int] = (0, 1)) -> tuple[str, CrowdGains]:
    """Many prompts of different lengths: throughput over other methods, for some seeds."""
    rows, gains = [], CrowdGains()
    for place in ("deepseek_v31_pp4_tp4", "qwen3_235b_pp4_tp4", "glm_45_pp4_tp4"):
        scenario = _windowed(load_scenario(FOLDER / f"{place}.yaml"))
        for seed in seeds:
            asks = make_workload(kind, prompt_tokens=prompt_tokens, count=64, seed=seed)
            rows.append(_crowd_row(f"{place}, seed {seed}", scenario, asks, gains))
    headings = ["workload", "auto tokens/s", "over dcpp swept"]
    return table(
        [*headings, *(f"over {name}" for name in gains.named), "bubble", "plan"], rows
    ), gains


def _crowd_row(
    name: str, scenario: Scenario, asks: tuple[Ask, ...], gains: CrowdGains
) -> list[str]:
    problem = scenario.problem(asks)
    best = choose(problem).best
    swept = _tuned(scenario, asks, "plain", 1, "dynamic")
    assert swept is not None
    gains.swept.append(swept.makespan_s / best.makespan_s - 1.0)
    cells = []
    for label, prediction in _named(problem).items():
        if prediction is not None:
            gain = prediction.makespan_s / best.makespan_s - 1.0
            gains.named.setdefault(label.split(" (")[0], []).append(gain)
            cells.append(f"{gain:+.1%}")
    return [
        name,
        f"{sum(problem.lengths) / best.makespan_s:.0f}",
        f"{gains.swept[-1]:+.1%}",
        *cells,
        f"{best.bubble_ratio:.1%}",
        describe(best),
    ]
