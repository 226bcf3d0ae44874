"""Simulator against reality:  python -m scripts.validate_simulator [--rounds 5] [--tokens 8192]

Two ranks run methods and chunk sizes in interleaved rounds inside one msrun, on a synthetic
Qwen3-MoE. Costs are calibrated on the variants of benchmarks/calibration.py, at the first prompt
length, and predict all others. Prints the errors of makespans, whether the simulator decides as the
ranks did when it is given their times, and whether the bytes of every link are the simulated ones;
writes all to benchmarks/results/simulator.json.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.calibration import CALIBRATING, LAYERS, calibrate_from
from benchmarks.machine import where
from benchmarks.synthetic import write_checkpoint, write_prompts
from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.job import compare_job
from vpp_ms.model.registry import load_spec
from vpp_ms.plan.plan import make_plan
from vpp_ms.schedule.walk import TimedAction
from vpp_ms.sim import Ask, Costs, simulate
from vpp_ms.sim.defaults import costs_of
from vpp_ms.sim.rerun import rerun
from vpp_ms.trace import Trace, read_trace
from vpp_ms.trace.events import COMPUTE, SEND, Event

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "output/validate"
RESULT = ROOT / "benchmarks/results/simulator.json"
VARIANTS: dict[str, dict[str, Any]] = CALIBRATING | {
    f"{name}, {chunk_tokens}": {"vpp": vpp, "chunking": {"chunk_tokens": chunk_tokens}}
    for name, vpp, chunk_tokens in (
        ("cpp", {"method": "cpp"}, 512),
        ("cpp", {"method": "cpp"}, 256),
        ("vpp", {"method": "vpp"}, 512),
        ("vpp", {"method": "vpp"}, 256),
        ("vpp", {"method": "vpp"}, 1024),
        ("loop", {"method": "vpp", "placement": "loop"}, 512),
        ("loop4", {"method": "vpp", "placement": "loop", "virtual_stages": 4}, 512),
        ("v4", {"method": "vpp", "virtual_stages": 4}, 512),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 5000])
    arguments = parser.parse_args()
    model = write_checkpoint(WORK / "model", num_hidden_layers=LAYERS)
    rows = []
    costs: Costs | None = None
    for tokens in arguments.tokens:
        measured = _measure(model, tokens, arguments.rounds)
        if costs is None:  # one run carries all predictions, of other lengths too
            costs = calibrate_from(WORK / f"{tokens}", model).costs
        rows += [_compare(model, tokens, name, costs, measured[name]) for name in measured]
    errors = [abs(row["error"]) for row in rows if row["variant"] not in CALIBRATING]
    summary = {
        "median_error": median(errors),
        "worst_error": max(errors),
        "rounds": arguments.rounds,
        **where(),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"origin": "measured", **summary, "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['tokens']:>6} {row['variant']:<22} measured {row['measured_s']:.3f} s, "
            f"simulated {row['simulated_s']:.3f} s ({row['error']:+.1%}); order in the ranks' "
            f"times {_word(row['order_equal'])}, in predicted times equal at "
            f"{row['order_predicted']:.0%}, bytes {_word(row['bytes_equal'])}"
        )
    print(f"median error {summary['median_error']:.1%}, worst {summary['worst_error']:.1%}")


def _config(model: Path, tokens: int, name: str) -> RunConfig:
    return RunConfig(
        output_dir=WORK / f"{tokens}",
        pretrained_model_dir=model,
        **VARIANTS[name],
        input={"prompts": WORK / f"{tokens}.jsonl", "max_new_tokens": 1},
    )


def _measure(model: Path, tokens: int, rounds: int) -> dict[str, float]:
    """Median makespans, all variants interleaved."""
    write_prompts(WORK / f"{tokens}.jsonl", [tokens])
    variants = {name: _config(model, tokens, name) for name in VARIANTS}
    result = compare_job(variants, rounds, lambda event: None)
    return {name: entry["median"]["makespan_s"] for name, entry in result["methods"].items()}


def _compare(
    model: Path, tokens: int, name: str, costs: Costs, measured_s: float
) -> dict[str, Any]:
    config = _config(model, tokens, name)
    plan = make_plan(config, load_spec(model), (tokens,), new_tokens=(1,))
    believed = costs_of(config, load_spec(model))
    simulated = simulate(plan, costs, (Ask(tokens),), believed=believed)
    executed = read_trace(_trace_file(tokens, name))
    simulated_s = max(e.end_s for e in simulated.of(COMPUTE))
    return {
        "tokens": tokens,
        "variant": name,
        "measured_s": measured_s,
        "simulated_s": simulated_s,
        "error": simulated_s / measured_s - 1.0,
        "order_equal": _orders(rerun(executed, plan, believed).actions)
        == _orders(executed.of(COMPUTE)),
        "order_predicted": _share_equal(
            _orders(simulated.of(COMPUTE)), _orders(executed.of(COMPUTE))
        ),
        "bytes_equal": _bytes(simulated) == _bytes(executed),
    }


def _trace_file(tokens: int, name: str) -> Path:
    return WORK / f"{tokens}" / name / "trace.json"


Orders = dict[int, list[tuple[int, int]]]  # of each rank: (stage, micro-batch)


def _orders(actions: Iterable[Event | TimedAction]) -> Orders:
    found: Orders = defaultdict(list)
    for action in actions:
        found[action.rank].append((action.stage, action.micro_batch))
    return dict(found)


def _share_equal(one: Orders, other: Orders) -> float:
    """Share of positions at which ranks ran the same action."""
    pairs = [pair for rank in one for pair in zip(one[rank], other[rank], strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def _bytes(trace: Trace) -> dict[tuple[int, int, int], int]:
    found: dict[tuple[int, int, int], int] = defaultdict(int)
    for event in trace.of(SEND):
        found[event.stage, event.rank, event.peer] += event.num_bytes
    return dict(found)


def _word(equal: bool) -> str:
    return "equal" if equal else "DIFFERENT"


if __name__ == "__main__":
    main()
