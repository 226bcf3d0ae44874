"""config.json of both families in every spelling, and each unsupported setting refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vpp_ms.config.model_spec import ModelSpec, MoESpec, RopeSpec
from vpp_ms.errors import CheckpointError
from vpp_ms.model.registry import FAMILIES, load_family, load_spec

QWEN3_30B: dict[str, Any] = {  # as published with Qwen3-30B-A3B
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 151643,
    "decoder_sparse_step": 1,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MIXTRAL_8X7B: dict[str, Any] = {  # as published with Mixtral-8x7B
    "architectures": ["MixtralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}
BASES = {"qwen3_moe": QWEN3_30B, "mixtral": MIXTRAL_8X7B}
ABSENT = object()


def read(tmp_path: Path, base: dict[str, Any], **changes: Any) -> ModelSpec:
    config = {k: v for k, v in {**base, **changes}.items() if v is not ABSENT}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return load_spec(tmp_path)


def test_qwen3_30b(tmp_path: Path) -> None:
    assert read(tmp_path, QWEN3_30B) == ModelSpec(
        family="qwen3_moe",
        num_layers=48,
        hidden_size=2048,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        vocab_size=151936,
        intermediate_size=6144,
        max_position=40960,
        rms_eps=1e-6,
        rope=RopeSpec(theta=1e6, original_max_position=40960),
        moe=MoESpec(num_experts=128, top_k=8, intermediate_size=768, norm_topk=True),
        qk_norm=True,
        eos_token_ids=(151645,),
        dtype="bfloat16",
    )


def test_mixtral_8x7b(tmp_path: Path) -> None:
    assert read(tmp_path, MIXTRAL_8X7B) == ModelSpec(
        family="mixtral",
        num_layers=32,
        hidden_size=4096,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=32000,
        intermediate_size=14336,
        max_position=32768,
        rms_eps=1e-5,
        rope=RopeSpec(theta=1e6, original_max_position=32768),
        moe=MoESpec(num_experts=8, top_k=2, intermediate_size=14336, norm_topk=True),
        eos_token_ids=(2,),
        dtype="bfloat16",
    )


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_spellings_of_transformers_5(tmp_path: Path, base: dict[str, Any]) -> None:
    new = read(
        tmp_path,
        base,
        rope_theta=ABSENT,
        rope_scaling=ABSENT,
        rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
        torch_dtype=ABSENT,
        dtype="bfloat16",
        num_experts=ABSENT,
        num_local_experts=base.get("num_experts") or base["num_local_experts"],
    )
    assert new == read(tmp_path, base)


YARN = {"factor": 4.0, "original_max_position_embeddings": 8192, "beta_fast": 32}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize(
    ("kind", "table", "params"),
    [
        ("yarn", YARN, (("beta_fast", 32.0),)),
        ("yarn", {**YARN, "truncate": False}, (("beta_fast", 32.0), ("truncate", 0.0))),
        ("llama3", LLAMA3, (("high_freq_factor", 4.0), ("low_freq_factor", 1.0))),
    ],
)
def test_rope_scaling_in_both_spellings(
    tmp_path: Path, key: str, kind: str, table: dict[str, Any], params: tuple
) -> None:
    expected = RopeSpec(1e6, kind, table["factor"], 8192, params)
    old = read(tmp_path, MIXTRAL_8X7B, rope_scaling={key: kind, **table})
    new = read(
        tmp_path,
        MIXTRAL_8X7B,
        rope_theta=ABSENT,
        rope_parameters={"rope_theta": 1e6, key: kind, **table},
    )
    assert old.rope == new.rope == expected


def test_yarn_factor_follows_from_the_lengths(tmp_path: Path) -> None:
    table = {"rope_type": "yarn", "original_max_position_embeddings": 8192}
    assert read(tmp_path, MIXTRAL_8X7B, rope_scaling=table).rope.factor == 4.0


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_simple_scalings(tmp_path: Path, kind: str) -> None:
    spec = read(tmp_path, MIXTRAL_8X7B, rope_scaling={"type": kind, "factor": 2})
    assert spec.rope == RopeSpec(1e6, kind, 2.0, 32768)


def test_defaults_where_keys_are_absent(tmp_path: Path) -> None:
    mixtral = read(
        tmp_path, MIXTRAL_8X7B, rope_theta=ABSENT, rms_norm_eps=ABSENT, num_key_value_heads=ABSENT
    )
    assert (mixtral.rope.theta, mixtral.rms_eps, mixtral.num_kv_heads) == (1e6, 1e-5, 32)
    qwen3 = read(tmp_path, QWEN3_30B, rope_theta=ABSENT, head_dim=None, norm_topk_prob=ABSENT)
    assert (qwen3.rope.theta, qwen3.head_dim) == (10_000.0, 64)
    assert qwen3.moe is not None and not qwen3.moe.norm_topk


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"mlp_only_layers": [0, 2]}, (0, 2)),
        ({"decoder_sparse_step": 2}, (0, 2, 4)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, (0, 1, 2, 4)),
        ({"mlp_only_layers": None}, ()),
    ],
)
def test_dense_layers_of_qwen3(tmp_path: Path, changes: dict[str, Any], dense: tuple) -> None:
    spec = read(tmp_path, QWEN3_30B, num_hidden_layers=5, **changes)
    assert spec.dense_layers == dense


def test_sliding_window_is_on_only_when_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, MIXTRAL_8X7B, sliding_window=4096).sliding_window == 4096
    assert read(tmp_path, QWEN3_30B, sliding_window=4096).sliding_window is None
    on = read(
        tmp_path, QWEN3_30B, sliding_window=4096, use_sliding_window=True, max_window_layers=0
    )
    assert on.sliding_window == 4096


def test_end_tokens_of_generation_config_win(tmp_path: Path) -> None:
    assert read(tmp_path, MIXTRAL_8X7B, eos_token_id=[2, 7]).eos_token_ids == (2, 7)
    assert read(tmp_path, MIXTRAL_8X7B, eos_token_id=None).eos_token_ids == ()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read(tmp_path, MIXTRAL_8X7B).eos_token_ids == (5, 6)
    (tmp_path / "generation_config.json").write_text("{}")
    assert read(tmp_path, MIXTRAL_8X7B).eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("mixtral", {"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "'silu'"]),
        ("mixtral", {"quantization_config": {"bits": 4}}, ["quantization_config", "absent"]),
        ("mixtral", {"rope_scaling": {"type": "su", "factor": 2}}, ["rope_type", "'su'", "yarn"]),
        ("mixtral", {"rope_scaling": {"type": "longrope"}}, ["rope_type", "'longrope'"]),
        ("mixtral", {"rope_scaling": {"type": "linear"}}, ["factor", "missing"]),
        ("mixtral", {"rope_scaling": {"type": "llama3", "factor": 2}}, ["high_freq_factor"]),
        ("mixtral", {"rope_scaling": {"type": "linear", "factor": 2, "beta": 3}}, ["beta"]),
        ("mixtral", {"rope_parameters": {"full_attention": {}}}, ["full_attention", "default"]),
        ("mixtral", {"rope_scaling": [1]}, ["rope_parameters", "a table"]),
        ("mixtral", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ("mixtral", {"hidden_size": "4096"}, ["hidden_size", "'4096'", "integer"]),
        ("mixtral", {"hidden_size": True}, ["hidden_size", "True"]),
        ("mixtral", {"hidden_size": ABSENT}, ["hidden_size", "missing"]),
        ("mixtral", {"num_hidden_layers": 0}, ["num_hidden_layers", "0", ">= 1"]),
        ("mixtral", {"num_key_value_heads": 5}, ["num_key_value_heads", "5", "divisor of 32"]),
        ("mixtral", {"hidden_size": 100}, ["hidden_size", "100", "32 heads"]),
        ("mixtral", {"head_dim": 7}, ["head_dim", "7", "even"]),
        ("mixtral", {"num_experts_per_tok": 9}, ["num_experts_per_tok", "9", "1 to 8"]),
        ("mixtral", {"num_experts": 16}, ["num_local_experts and num_experts", "[8, 16]"]),
        ("mixtral", {"torch_dtype": "int8"}, ["dtype", "'int8'", "bfloat16"]),
        ("mixtral", {"tie_word_embeddings": "no"}, ["tie_word_embeddings", "'no'"]),
        ("mixtral", {"eos_token_id": "</s>"}, ["eos_token_id", "'</s>'"]),
        ("mixtral", {"rms_norm_eps": -1}, ["rms_norm_eps", "-1"]),
        ("qwen3_moe", {"attention_bias": True}, ["attention_bias", "True", "False"]),
        ("qwen3_moe", {"decoder_sparse_step": 0}, ["decoder_sparse_step", "0"]),
        ("qwen3_moe", {"mlp_only_layers": ["a"]}, ["mlp_only_layers"]),
        ("qwen3_moe", {"layer_types": ["full_attention"]}, ["layer_types"]),
        (
            "qwen3_moe",
            {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 28},
            ["max_window_layers", "28"],
        ),
    ],
)
def test_unsupported_settings_are_refused_by_name(
    tmp_path: Path, family: str, changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, BASES[family], **changes)
    message = str(caught.value)
    assert "\n" not in message and str(tmp_path / "config.json") in message
    assert all(word in message for word in words), message


def test_an_unknown_model_type_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'qwen3-moe'.*qwen3_moe.*is it qwen3_moe\?"):
        read(tmp_path, QWEN3_30B, model_type="qwen3-moe")
    with pytest.raises(CheckpointError, match=r"LlamaForCausalLM.*MixtralForCausalLM"):
        read(tmp_path, QWEN3_30B, model_type=ABSENT, architectures=["LlamaForCausalLM"])
    with pytest.raises(CheckpointError, match="architectures"):
        read(tmp_path, QWEN3_30B, architectures=["Qwen3MoeForSequenceClassification"])
    with pytest.raises(CheckpointError, match="model_type"):
        read(tmp_path, QWEN3_30B, model_type=["qwen3_moe"])


def test_the_family_is_found_by_architecture_too(tmp_path: Path) -> None:
    assert read(tmp_path, QWEN3_30B, model_type=ABSENT).family == "qwen3_moe"
    assert read(tmp_path, MIXTRAL_8X7B, architectures=ABSENT).family == "mixtral"


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_spec(tmp_path)


def test_a_missing_directory_or_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory"):
        load_spec(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        load_spec(tmp_path)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_a_folder_of_the_same_shape(name: str) -> None:
    assert load_family(name).name == name
    folder = Path(__file__).parents[3] / "model_zoo" / name
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {"README.md", "__init__.py", "config.py", "weights.py"}
