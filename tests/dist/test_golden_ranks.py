"""Several ranks against what Transformers computed: tied heads, odd layer counts, both families."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.job import compare_job

DATA_DIR = Path(__file__).parents[1] / "golden" / "data"
TOLERANCE = 1e-4  # absolute, or relative to the largest logit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "ranks"), [("mixtral_tied", 3), ("qwen3_moe_m0", 2)])
def test_logits_equal_transformers(name: str, ranks: int, tmp_path: Path) -> None:
    goldens = load_file(DATA_DIR / name / "goldens.safetensors")
    lengths = sorted(int(key[4:]) for key in goldens if key.startswith("ids_"))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"id": str(length), "token_ids": goldens[f"ids_{length}"].tolist()}) + "\n"
            for length in lengths
        )
    )
    base = {
        "pretrained_model_dir": DATA_DIR / name,
        "output_dir": tmp_path,
        "parallel_config": {"pipeline_stage": ranks},
        "chunking": {"chunk_tokens": 16},
        "kv": {"block_size": 4},
        "input": {"prompts": prompts, "max_new_tokens": 0},
        "output": {"logits": True},
    }
    layouts = {"plain": {"method": "cpp"}}
    if ranks == 2:  # five layers on four stages
        layouts |= {"v": {"method": "vpp"}, "loop": {"method": "vpp", "placement": "loop"}}
    variants = {
        layout: RunConfig.model_validate(base | {"vpp": vpp}) for layout, vpp in layouts.items()
    }
    compare_job(variants, 2, lambda event: None)
    for layout in layouts:
        got = load_file(tmp_path / layout / "logits.safetensors")
        for length in lengths:
            expected = goldens[f"logits_{length}"]
            bound = TOLERANCE * max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(
                got[str(length)], expected, rtol=0, atol=bound, err_msg=f"{layout} {length}"
            )
