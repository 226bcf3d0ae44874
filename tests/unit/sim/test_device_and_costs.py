"""Device cards and derived costs: every figure has an origin, every mistake is one clear line."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from tests.unit.sim.sim_problems import MOE
from vpp_ms.config.model_spec import MLASpec, ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import ConfigError, VppError
from vpp_ms.plan.flops import layer_flops
from vpp_ms.plan.memory import Footprint, layer_parameters
from vpp_ms.plan.placement import Link
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.sim.costs import Costs, derive
from vpp_ms.sim.defaults import costs_of
from vpp_ms.sim.device import CARDS, DeviceCard, Figure, load_card

CARD = load_card("ascend_910c")


@pytest.mark.parametrize("name", ["ascend_910c", "cpu_core"])
def test_every_figure_of_a_card_has_an_origin(name):
    card = load_card(name)
    figures = {name for name in DeviceCard.model_fields if isinstance(getattr(card, name), Figure)}
    assert set(card.origins) == figures
    assert set(card.origins.values()) <= {"measured", "vendor", "assumed"}


def test_a_card_that_ships_is_found_by_its_name_and_others_by_their_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text((CARDS / "cpu_core.yaml").read_text())
    assert load_card(str(path)) == load_card("cpu_core")


def card_with(tmp_path, **changes):
    data = yaml.safe_load((CARDS / "cpu_core.yaml").read_text())
    for key, value in changes.items():
        data[key] = value
        if value is None:
            del data[key]
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gemm_flop_per_s": {"value": 1.0, "origin": "assumed"}},
         r"card.yaml:\d+: gemm_flop_per_s: unknown key.*try: gemm_flops_per_s"),
        ({"link_latency_s": None}, r"link_latency_s: missing"),
        ({"gemm_flops_per_s": {"value": 0.0, "origin": "vendor"}},
         r"gemm_flops_per_s.value: 0.0; allowed: .*greater than 0"),
        ({"gemm_efficiency": {"value": 1.5, "origin": "assumed"}}, r"less than or equal to 1"),
        ({"gemm_efficiency": {"value": float("nan"), "origin": "assumed"}}, r"gemm_efficiency"),
        ({"layer_launch_s": {"value": -1.0, "origin": "assumed"}}, r"layer_launch_s.value: -1.0"),
        ({"layer_launch_s": {"value": 1.0}}, r"layer_launch_s.origin: missing"),
        ({"layer_launch_s": {"value": 1.0, "origin": "rumour"}}, r"'measured', 'vendor'"),
        ({"layer_launch_s": 0.1}, r"layer_launch_s: 0.1"),
    ],
)  # fmt: skip
def test_a_bad_card_is_one_clear_line(tmp_path, changes, says):
    with pytest.raises(ConfigError, match=says) as error:
        load_card(card_with(tmp_path, **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("[1, 2]", "no keys and values"), ("a: [", "not YAML"), ("", "no keys and values")],
)
def test_a_file_that_is_no_card(tmp_path, text, says):
    path = tmp_path / "card.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_card(str(path))


def test_an_unknown_card_names_those_that_ship():
    with pytest.raises(ConfigError, match=r"'ascend_910b'.*cpu_core.*try: ascend_910c"):
        load_card("ascend_910b")
    with pytest.raises(ConfigError, match="no such file"):
        load_card("nowhere.yaml")


def test_derived_costs_by_hand():
    footprint = Footprint(2, 1)
    part = derive(MOE, CARD, footprint).model.layers["moe"]
    flops, peak = layer_flops(MOE, "moe"), CARD.gemm_flops_per_s.value
    assert part.token_s == pytest.approx(flops.token / (0.55 * peak))
    assert part.pair_s == pytest.approx(flops.pair / (0.40 * peak))
    assert part.prefix_token_s == 0.0
    read_s = layer_parameters(MOE, 0) / CARD.memory_bytes_per_s.value
    assert part.launch_s == pytest.approx(CARD.layer_launch_s.value + read_s)


def test_tensor_parallel_devices_share_the_work_and_pay_for_all_reduces():
    one = derive(MOE, CARD, Footprint(2, 1)).model.layers["moe"]
    four = derive(MOE, CARD, Footprint(2, 1, tensor_parallel=4)).model.layers["moe"]
    assert four.pair_s == pytest.approx(one.pair_s / 4)
    reduced_s = 2 * 2 * 3 / 4 * 2 * MOE.hidden_size / CARD.collective_bytes_per_s.value
    assert four.token_s == pytest.approx(one.token_s / 4 + reduced_s)


def test_latent_attention_pays_for_cached_tokens():
    latent = replace(MOE, mla=MLASpec(64, 32, 16, 8, 16))
    part = derive(latent, CARD, Footprint(2, 1)).model.layers["moe"]
    assert part.prefix_token_s == pytest.approx(2 * 32 * 8 * 32 / (0.55 * 3.76e14))


def test_messages_are_hidden_states_and_on_the_way_back_the_rows_of_logits():
    link = derive(MOE, CARD, Footprint(2, 1)).link
    segments = (Segment(0, 0, 100), Segment(1, 0, 28, sample=True))
    micro_batch = MicroBatch(0, segments, (0.0,) * 4)
    there = link.hop(Link(0, 1, 0), micro_batch, last_stage=3)
    back = link.hop(Link(1, 0, 3), micro_batch, last_stage=3)
    assert there.num_bytes == 128 * 512 * 2
    assert back.num_bytes == 1000 * 4
    assert there.transfer_s == pytest.approx(there.num_bytes / CARD.link_bytes_per_s.value)


def test_costs_survive_a_file(tmp_path):
    costs = derive(MOE, CARD, Footprint(2, 1), "ascend_910c")
    costs.save(tmp_path / "costs.json")
    assert Costs.load(tmp_path / "costs.json") == costs


def test_a_configuration_stands_for_costs(tmp_path):
    def config(costs=None, target="CPU"):
        return RunConfig(
            pretrained_model_dir="model", vpp={"costs": costs}, context={"device_target": target}
        )

    assert costs_of(config(), MOE).origin == "derived from device card cpu_core"
    assert "ascend_910c" in costs_of(config(target="Ascend"), MOE).origin
    mine = card_with(tmp_path)
    assert costs_of(config(mine), MOE).origin == "derived from device card card"
    fitted = tmp_path / "costs.json"
    derive(MOE, CARD, Footprint(2, 1), "x").save(fitted)
    assert costs_of(config(fitted), MOE) == Costs.load(fitted)
    other = ModelSpec("toy", 25, 512, 8, 2, 64, 1000, 768, 65536)
    with pytest.raises(VppError, match=r"24 moe layers.*25 dense layers"):
        costs_of(config(fitted), other)


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"model": {"layers": 3}}'])
def test_a_file_that_holds_no_costs(tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(VppError, match="not a cost file; allowed: what vpp-ms calibrate writes"):
        Costs.load(path)
    with pytest.raises(VppError, match="no such file"):
        Costs.load(tmp_path / "nowhere.json")
