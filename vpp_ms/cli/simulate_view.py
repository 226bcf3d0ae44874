"""What `vpp-ms simulate` and `vpp-ms calibrate` print: every time says where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vpp_ms.cli.choice_view import print_choice
from vpp_ms.config import RunConfig
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim.calibrate import Calibration, calibrate
from vpp_ms.sim.choice import describe
from vpp_ms.sim.device import load_card
from vpp_ms.sim.planner import choose
from vpp_ms.sim.problem import Prediction, Problem
from vpp_ms.sim.scenario import Scenario, load_scenario
from vpp_ms.sim.simulate import simulate
from vpp_ms.sim.workload import Ask
from vpp_ms.trace import measure, read_trace, write_trace
from vpp_ms.trace.events import Trace


def run_scenario(
    path: Path,
    tokens: Sequence[int] = (),
    trace_path: Path | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    console: Console | None = None,
) -> None:
    """Simulate a scenario; with method auto, plan it first. Raises ConfigError or PlanError."""
    console = console or Console()
    scenario = load_scenario(path)
    problem = scenario.problem(tuple(map(Ask, tokens)) or None)
    for line in _head(scenario, problem):
        _line(console, line)
    if problem.config.vpp.method == "auto":
        choice = choose(problem)
        prediction = choice.best
        print_choice(console, choice)
    else:
        prediction = problem.predict(problem.sketch(problem.config))
    trace = simulate(prediction.sketch.plan, problem.costs, problem.asks, jitter=jitter, seed=seed)
    for line in _result(problem, prediction, trace):
        _line(console, line)
    if trace_path is not None:
        trace_path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(trace, trace_path)
        _line(console, f"simulated trace: {trace_path}")


def calibrate_runs(
    config: RunConfig, runs: Sequence[Path], out: Path, console: Console | None = None
) -> None:
    """Fit costs to the traces of `runs` (directories or files) and write them to `out`.

    Raises VppError when there is no trace, or none that can carry a cost model.
    """
    from vpp_ms.model.registry import load_spec

    console = console or Console()
    spec = load_spec(config.pretrained_model_dir)
    paths = [run / "trace.json" if run.is_dir() else run for run in runs]
    traces = {str(path): read_trace(path) for path in paths}
    fitted = calibrate(traces, spec, Footprint.of_config(config))
    out.parent.mkdir(parents=True, exist_ok=True)
    fitted.costs.save(out)
    console.print(_figures(fitted))
    link = fitted.costs.link
    _line(
        console, f"a message: {1e3 * link.latency_s:.2f} ms and {1e9 * link.byte_s:.2f} ns per byte"
    )
    _line(
        console,
        f"{fitted.costs.origin}; misfit {fitted.residual:.1%}, condition {fitted.condition:.0f}",
    )
    _line(console, f"costs: {out}; use them by --set vpp.costs={out}")


def _head(scenario: Scenario, problem: Problem) -> Iterator[str]:
    parallel, asks = scenario.parallel_config, problem.asks
    tokens = sum(problem.lengths)
    yield (
        f"SIMULATED: {scenario.model.stem} on {parallel.pipeline_stage} ranks of "
        f"{parallel.model_parallel} devices ({scenario.device}); {len(asks)} requests, "
        f"{tokens} prompt tokens"
    )
    origins = load_card(scenario.device).origins
    for origin in ("measured", "vendor", "assumed"):
        names = [name for name, value in origins.items() if value == origin]
        if names:
            yield f"  {origin}: {', '.join(names)}"


def _result(problem: Problem, prediction: Prediction, trace: Trace) -> Iterator[str]:
    metrics = measure(trace)
    tokens_per_s = sum(problem.lengths) / metrics.makespan_s
    steady = metrics.bubble_ratio_steady
    busiest_idle = 1.0 - max(metrics.busy_s) / metrics.makespan_s
    yield (
        f"simulated {describe(prediction)}: {metrics.makespan_s:.4g} s, "
        f"{tokens_per_s:.0f} tokens/s, bubble {metrics.bubble_ratio:.2%}"
        + ("" if steady is None else f" (steady {steady:.2%})")
        + f"; the busiest rank idles {busiest_idle:.2%}"
    )


def _figures(fitted: Calibration) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("+-", justify="right")
    for (part, figure), error in fitted.uncertainty.items():
        table.add_row(
            f"{part}: per {figure}", f"{fitted.figures[part, figure]:.3g} s", f"{error:.0%}"
        )
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
