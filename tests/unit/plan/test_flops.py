"""FLOPs and bytes of published models, against what their authors say of them."""

from __future__ import annotations

import pytest

from vpp_ms.config.model_spec import MLASpec, ModelSpec, MoESpec
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.flops import layer_flops
from vpp_ms.plan.memory import Footprint, kv_token_bytes, layer_parameters

DEEPSEEK = ModelSpec(
    "deepseek_v3",
    num_layers=61,
    hidden_size=7168,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    vocab_size=129_280,
    intermediate_size=18_432,
    max_position=163_840,
    moe=MoESpec(256, 8, 2048, num_shared=1),
    mla=MLASpec(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),
    dense_layers=(0, 1, 2),
)


def parameters(spec):
    tables = 2 * spec.vocab_size * spec.hidden_size
    return tables + sum(layer_parameters(spec, layer) for layer in range(spec.num_layers))


def test_deepseek_has_671_billion_parameters_and_37_are_active():
    assert parameters(DEEPSEEK) == pytest.approx(671e9, rel=0.002)
    flops = sum(layer_flops(DEEPSEEK, DEEPSEEK.layer_kind(i)).token for i in range(61))
    head = 2 * DEEPSEEK.hidden_size * DEEPSEEK.vocab_size
    assert flops + head == pytest.approx(2 * 37e9, rel=0.03)


def test_latent_attention_pays_per_pair_and_for_every_cached_token():
    flops = layer_flops(DEEPSEEK, "moe")
    assert 61 * flops.pair == pytest.approx(5.0e6, rel=0.01)
    assert flops.prefix_token == 2 * 512 * 128 * 256
    model = CostModel.of(DEEPSEEK)
    assert model.latency_terms()[3] == pytest.approx(61 * flops.prefix_token / 1e12)


def test_a_latent_is_cached_once_on_every_device():
    for devices in (1, 8):
        assert kv_token_bytes(DEEPSEEK, Footprint(2, 1, devices)) == 576 * 2


def test_key_value_heads_are_split_but_never_cut():
    spec = ModelSpec("toy", 2, 64, 8, 4, 16, 100, 64, 128)
    per_head = 2 * 16 * 2
    sizes = {d: kv_token_bytes(spec, Footprint(2, 2, d)) for d in (1, 2, 4, 8)}
    assert sizes == {1: 4 * per_head, 2: 2 * per_head, 4: per_head, 8: per_head}
