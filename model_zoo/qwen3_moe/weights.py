"""Names of a Qwen3-MoE checkpoint's weights, per expert or fused."""

from __future__ import annotations

from vpp_ms.model.family import ExpertNames, WeightNames

_LAYER = "model.layers.{layer}"
_MLP = f"{_LAYER}.mlp"
_EXPERT = _MLP + ".experts.{expert}"

WEIGHT_NAMES = WeightNames(
    embedding="model.embed_tokens.weight",
    final_norm="model.norm.weight",
    head="lm_head.weight",
    attention={
        "attn_norm": f"{_LAYER}.input_layernorm.weight",
        "q": f"{_LAYER}.self_attn.q_proj.weight",
        "k": f"{_LAYER}.self_attn.k_proj.weight",
        "v": f"{_LAYER}.self_attn.v_proj.weight",
        "o": f"{_LAYER}.self_attn.o_proj.weight",
        "q_norm": f"{_LAYER}.self_attn.q_norm.weight",
        "k_norm": f"{_LAYER}.self_attn.k_norm.weight",
        "ffn_norm": f"{_LAYER}.post_attention_layernorm.weight",
    },
    dense={
        "gate": f"{_MLP}.gate_proj.weight",
        "up": f"{_MLP}.up_proj.weight",
        "down": f"{_MLP}.down_proj.weight",
    },
    experts=(
        ExpertNames(
            router=f"{_MLP}.gate.weight",
            weights={
                "gate": f"{_EXPERT}.gate_proj.weight",
                "up": f"{_EXPERT}.up_proj.weight",
                "down": f"{_EXPERT}.down_proj.weight",
            },
        ),
        ExpertNames(
            router=f"{_MLP}.gate.weight",
            weights={
                "gate_up": f"{_MLP}.experts.gate_up_proj",
                "down": f"{_MLP}.experts.down_proj",
            },
        ),
    ),
)
