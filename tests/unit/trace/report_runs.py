"""Runs on disk as `vpp-ms run` and `compare` leave them, with simulated traces: for the tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Segment
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.walk import Hop, walk
from vpp_ms.schedule.window import Window
from vpp_ms.trace import Trace, trace_of_walk, write_trace
from vpp_ms.trace.cargo import cargo_meta
from vpp_ms.trace.events import MEASURED

CHUNK_TOKENS = 1024


def simulated(kind="v", sweeps=2, num_ranks=2, prompts=(8000,), hop_s=0.01, scale=1.0, **meta):
    """Chunks that cost more the longer their prefix is."""
    placement = Placement(kind, num_ranks, sweeps)
    groups = [
        (Segment(request, start, min(CHUNK_TOKENS, n - start), start + CHUNK_TOKENS >= n),)
        for request, n in enumerate(prompts)
        for start in range(0, n, CHUNK_TOKENS)
    ]
    costs_nS = [
        [scale * s.length * (1 + s.start / 4000) / 1000 / sweeps] * placement.num_stages
        for (s,) in groups
    ]
    batches = prioritize(placement, groups, costs_nS, "best")
    run = walk(
        placement,
        batches,
        costs_nS,
        hop_of=lambda link, mb: Hop(latency_s=hop_s),
        window=Window(max_micro_batches=4 * num_ranks),
    )
    names = [f"prompt {request}" for request in range(len(prompts))]
    described = {"method": "vpp", "placement": kind, "model": "m1", "plan_hash": f"{kind}{sweeps}"}
    return trace_of_walk(run, meta=described | cargo_meta(batches, names) | meta)


def write_run(directory: Path, trace: Trace, prediction: Trace | None = None) -> Path:
    directory.mkdir(parents=True)
    write_trace(replace(trace, origin=MEASURED), directory / "trace.json")
    result = {
        "plan_hash": trace.meta["plan_hash"],
        "prompt_tokens": 8000,
        "tokens_per_s": 123.0,
    }
    (directory / "result.json").write_text(json.dumps(result))
    if prediction is not None:
        write_trace(prediction, directory / "prediction.json")
    return directory


def write_comparison(directory: Path, rounds: int = 3) -> Path:
    """cpp and vpp; cpp with a prediction that is 10 % too fast."""
    cpp = simulated("plain", 1, method="cpp")
    write_run(directory / "cpp", cpp, simulated("plain", 1, method="cpp", scale=0.9))
    write_run(directory / "vpp", simulated())
    medians = {
        "makespan_s": 9.0,
        "tokens_per_s": 900.0,
        "bubble_ratio": 0.1,
        "bubble_ratio_steady": None,
    }
    methods = {name: {"median": medians} for name in ("cpp", "vpp")}
    comparison = {"origin": "measured", "rounds": rounds, "methods": methods}
    (directory / "compare.json").write_text(json.dumps(comparison))
    return directory
