"""Names of a Mixtral checkpoint's weights: w1 is the gate, w3 the up and w2 the down matrix."""

from __future__ import annotations

from vpp_ms.model.family import ExpertNames, WeightNames

_LAYER = "model.layers.{layer}"
_MOE = f"{_LAYER}.block_sparse_moe"
_EXPERT = _MOE + ".experts.{expert}"

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
        "ffn_norm": f"{_LAYER}.post_attention_layernorm.weight",
    },
    dense={},
    experts=(
        ExpertNames(
            router=f"{_MOE}.gate.weight",
            weights={
                "gate": f"{_EXPERT}.w1.weight",
                "up": f"{_EXPERT}.w3.weight",
                "down": f"{_EXPERT}.w2.weight",
            },
        ),
        ExpertNames(
            router=f"{_LAYER}.mlp.gate.weight",
            weights={
                "gate_up": f"{_LAYER}.mlp.experts.gate_up_proj",
                "down": f"{_LAYER}.mlp.experts.down_proj",
            },
        ),
    ),
)
