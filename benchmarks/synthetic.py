"""A synthetic Qwen3-MoE checkpoint and prompts, so that peers run the very same weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 256,
    "intermediate_size": 1536,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "vocab_size": 32000,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def write_checkpoint(directory: Path, seed: int = 0, **changes: object) -> Path:
    """Write the model once, `CONFIG` with `changes`; an existing directory is kept."""
    if (directory / "config.json").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    config = CONFIG | changes
    rng = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}

    def random(name: str, *shape: int) -> None:
        scale = shape[-1] ** -0.5
        tensors[name] = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def ones(name: str, size: int) -> None:
        tensors[name] = np.ones(size, np.float32)

    hidden, head_dim = config["hidden_size"], config["head_dim"]
    query, kv = (config[k] * head_dim for k in ("num_attention_heads", "num_key_value_heads"))
    width = config["moe_intermediate_size"]
    random("model.embed_tokens.weight", config["vocab_size"], hidden)
    random("lm_head.weight", config["vocab_size"], hidden)
    ones("model.norm.weight", hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        ones(f"{prefix}.input_layernorm.weight", hidden)
        ones(f"{prefix}.post_attention_layernorm.weight", hidden)
        ones(f"{prefix}.self_attn.q_norm.weight", head_dim)
        ones(f"{prefix}.self_attn.k_norm.weight", head_dim)
        random(f"{prefix}.self_attn.q_proj.weight", query, hidden)
        random(f"{prefix}.self_attn.k_proj.weight", kv, hidden)
        random(f"{prefix}.self_attn.v_proj.weight", kv, hidden)
        random(f"{prefix}.self_attn.o_proj.weight", hidden, query)
        random(f"{prefix}.mlp.gate.weight", config["num_experts"], hidden)
        for expert in range(config["num_experts"]):
            base = f"{prefix}.mlp.experts.{expert}"
            random(f"{base}.gate_proj.weight", width, hidden)
            random(f"{base}.up_proj.weight", width, hidden)
            random(f"{base}.down_proj.weight", hidden, width)
    save_file(tensors, str(directory / "model.safetensors"), metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return directory


def prompt_ids(num_tokens: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    return rng.integers(2, CONFIG["vocab_size"], num_tokens).tolist()


def write_prompts(path: Path, lengths: list[int]) -> Path:
    """One prompt per length; only its prefill is wanted."""
    lines = [
        json.dumps({"id": f"p{i}", "token_ids": prompt_ids(n, seed=i), "max_new_tokens": 0})
        for i, n in enumerate(lengths)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def flops(num_tokens: int, start: int, num_layers: int) -> float:
    """Useful FLOPs of prefilling `num_tokens` tokens behind a prefix of `start` tokens.

    Multiply-adds count two; embedding, norms and the head's single row are left out.
    """
    hidden, head_dim = CONFIG["hidden_size"], CONFIG["head_dim"]
    query, kv = (CONFIG[k] * head_dim for k in ("num_attention_heads", "num_key_value_heads"))
    projections = hidden * (2 * query + 2 * kv) + hidden * CONFIG["num_experts"]
    experts = CONFIG["num_experts_per_tok"] * 3 * hidden * CONFIG["moe_intermediate_size"]
    context = num_tokens * start + num_tokens * (num_tokens + 1) / 2
    return num_layers * (2 * num_tokens * (projections + experts) + 4 * query * context)
