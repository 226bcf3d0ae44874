"""The layout changes where a layer runs, never what it computes.

Real `msrun` ranks, one session per number of ranks; every layout of it serves the same prompts
with the same chunks, and logits and tokens must be bit-identical to one rank's.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.synthetic import write_checkpoint
from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.job import compare_job
from vpp_ms.trace import read_trace
from vpp_ms.trace.meta import read_meta

LAYERS = 16
LAYOUTS = [("plain", 1), *((kind, v) for kind in ("loop", "v") for v in (1, 2, 4))]
LENGTHS = (61, 1, 17, 5, 100)  # two chunk-crossing prompts, three that are packed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(
        tmp_path_factory.mktemp("model"),
        num_hidden_layers=LAYERS,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        vocab_size=97,
        max_position_embeddings=256,
    )


def serve(
    model_dir: Path, output_dir: Path, ranks: int, layouts: list, split: str = "auto"
) -> dict[str, Path]:
    """Run all layouts in one session; each one's output directory by name."""
    prompts = output_dir / "prompts.jsonl"
    rng = np.random.default_rng(0)
    prompts.write_text(
        "".join(
            json.dumps({"id": f"r{i}", "token_ids": rng.integers(2, 97, length).tolist()}) + "\n"
            for i, length in enumerate(LENGTHS)
        )
    )
    base = {
        "pretrained_model_dir": model_dir,
        "output_dir": output_dir,
        "parallel_config": {"pipeline_stage": ranks},
        "chunking": {"chunk_tokens": 16},
        "kv": {"block_size": 4},
        "input": {"prompts": prompts, "max_new_tokens": 3, "ignore_eos": True},
        "output": {"logits": True},
    }
    variants = {
        f"{kind}{v}": RunConfig.model_validate(
            base
            | {
                "vpp": {
                    "method": "vpp",
                    "placement": kind,
                    "virtual_stages": v,
                    "layer_split": split,
                }
            }
        )
        for kind, v in layouts
    }
    compare_job(variants, 1, lambda event: None)
    return {name: output_dir / name for name in variants}


@pytest.fixture(scope="module")
def reference(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return serve(model_dir, tmp_path_factory.mktemp("one"), 1, LAYOUTS)


def first_tokens(directory: Path) -> list[int]:
    result = json.loads((directory / "result.json").read_text())
    assert all(request["error"] is None for request in result["requests"])
    assert all(len(request["output_token_ids"]) == 3 for request in result["requests"])
    return [request["output_token_ids"][0] for request in result["requests"]]


def check_same(outputs: dict[str, Path], expected: Path) -> None:
    wanted = load_file(expected / "logits.safetensors")
    assert sorted(wanted) == [f"r{i}" for i in range(len(LENGTHS))]
    assert all(np.isfinite(row).all() and np.ptp(row) > 0 for row in wanted.values())
    for name, directory in outputs.items():
        got = load_file(directory / "logits.safetensors")
        for request, row in wanted.items():
            np.testing.assert_array_equal(got[request], row, err_msg=f"{name} {request}")
        assert first_tokens(directory) == first_tokens(expected), name


def test_one_rank(reference: dict[str, Path]) -> None:
    check_same(reference, reference["plain1"])


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks(ranks: int, model_dir: Path, reference: dict[str, Path], tmp_path: Path) -> None:
    layouts = [(kind, v) for kind, v in LAYOUTS if ranks * v <= LAYERS]
    check_same(serve(model_dir, tmp_path, ranks, layouts), reference["plain1"])


def test_layers_by_turns(model_dir: Path, reference: dict[str, Path], tmp_path: Path) -> None:
    """16 layers on 3 ranks. Prompts of different turns are not packed together, so their sums may
    round differently than without turns; with turns the layout changes nothing."""
    outputs = serve(model_dir, tmp_path, 3, [("plain", 1), ("v", 2), ("loop", 2)], "turns")
    for directory in outputs.values():
        trace = read_trace(directory / "trace.json")
        stages = read_meta(trace).stages
        assert {len(stage.turns) for stage in stages} == {4}
        assert sum(stage.num_layers for stage in stages) > LAYERS, "some layers are held twice"
    check_same(outputs, outputs["plain1"])
    wanted = load_file(reference["plain1"] / "logits.safetensors")
    for request, row in load_file(outputs["v2"] / "logits.safetensors").items():
        np.testing.assert_allclose(row, wanted[request], atol=1e-5, rtol=0)
    assert first_tokens(outputs["v2"]) == first_tokens(reference["plain1"])
