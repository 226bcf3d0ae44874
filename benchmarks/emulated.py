"""Emulated devices against the simulator, up to 16 ranks on this machine; writes one JSON file.

    python benchmarks/emulated.py [--ranks 4,8,16]

Real `msrun` ranks, transport, order and trace; a stage waits its predicted time instead of
computing. Every figure is labelled emulated or simulated.
"""

from __future__ import annotations

import json
from pathlib import Path

import typer
from synthetic import CONFIG, write_prompts

from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.job import Job, compare_job, prepare_job
from vpp_ms.sim.defaults import costs_of
from vpp_ms.sim.simulate import walk_prefill

HERE = Path(__file__).resolve().parent
LAYOUTS = (("plain", 1), ("loop", 2), ("v", 2), ("loop", 4), ("v", 4))
# The shape of Qwen3-235B-A22B; 96 layers instead of 94, so that every layout splits them evenly.
MODEL = CONFIG | {
    "hidden_size": 4096,
    "num_hidden_layers": 96,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "bfloat16",
}
DEVICES, CHUNK_TOKENS = 16, 16384
WORKLOADS = {"single": [512 * 1024], "stream_of_8": [128 * 1024] * 8}
RUN_S = 30.0  # of the plain layout; the emulation is slowed or sped up to it


def variants(work_dir: Path, ranks: int, lengths: list[int], scale: float) -> dict[str, RunConfig]:
    """The layouts that have a layer for every stage."""
    base = {
        "pretrained_model_dir": work_dir / "model",
        "output_dir": work_dir / f"output_{ranks}",
        "context": {"device_target": "Emulated"},
        "emulation": {"time_scale": scale, "message_width": 1},
        "parallel_config": {"pipeline_stage": ranks, "model_parallel": DEVICES // ranks},
        "model": {"compute_dtype": "bfloat16"},
        "chunking": {"chunk_tokens": CHUNK_TOKENS},
        "kv": {"block_size": 128},
        "input": {"prompts": work_dir / "prompts.jsonl", "max_new_tokens": 0},
    }
    write_prompts(work_dir / "prompts.jsonl", lengths)
    return {
        f"{kind}{v}": RunConfig.model_validate(
            base | {"vpp": {"method": "vpp", "placement": kind, "virtual_stages": v}}
        )
        for kind, v in LAYOUTS
        if ranks * v <= MODEL["num_hidden_layers"]
    }


def simulated(job: Job) -> dict[str, tuple[float, float]]:
    """Makespan in predicted seconds and bubble ratio of each variant."""
    found = {}
    for name in job.variants:
        plan = job.make_plan(name)
        walk = walk_prefill(plan, costs_of(job.config, job.spec), job.prompt_lengths)
        found[name] = walk.makespan_s, walk.bubble_ratio
    return found


def measure(work_dir: Path, ranks: int, lengths: list[int]) -> dict[str, dict]:
    predicted = simulated(prepare_job(variants(work_dir, ranks, lengths, 1.0)))
    scale = RUN_S / predicted["plain1"][0]
    emulated = compare_job(variants(work_dir, ranks, lengths, scale), 1, lambda event: None)
    rows = {}
    for name, (makespan_s, bubble) in predicted.items():
        median = emulated["methods"][name]["median"]
        rows[name] = {
            "simulated_bubble": bubble,
            "emulated_bubble": median["bubble_ratio"],
            "difference_points": 100 * (median["bubble_ratio"] - bubble),
            "emulated_over_simulated_makespan": median["makespan_s"] / (scale * makespan_s),
        }
    return {"time_scale": scale, "layouts": rows}


def main(
    work_dir: Path = Path("output/emulated"),
    ranks: str = "4,8,16",
    out: Path = HERE / "results" / "emulated.json",
) -> None:
    """Run all layouts of all workloads, one session per number of ranks and workload."""
    (work_dir / "model").mkdir(parents=True, exist_ok=True)
    (work_dir / "model" / "config.json").write_text(json.dumps(MODEL))
    wanted = [int(count) for count in ranks.split(",")]
    kept = json.loads(out.read_text())["cases"] if out.exists() else []
    cases = [case for case in kept if case["ranks"] not in wanted]
    for count in wanted:
        for workload, lengths in WORKLOADS.items():
            layouts = measure(work_dir, count, lengths)
            cases.append({"ranks": count, "workload": workload, **layouts})
            worst = max(abs(row["difference_points"]) for row in layouts["layouts"].values())
            typer.echo(f"{count} ranks, {workload}: worst difference {worst:.2f} points")
            out.parent.mkdir(parents=True, exist_ok=True)
            cases.sort(key=lambda case: case["ranks"])
            out.write_text(json.dumps({"origin": "emulated", "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
