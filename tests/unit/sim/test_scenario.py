"""Scenarios and model cards: those that ship are right, and every mistake is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vpp_ms.errors import ConfigError, PlanError
from vpp_ms.plan.flops import layer_flops
from vpp_ms.plan.memory import layer_parameters
from vpp_ms.sim.forms import read_form
from vpp_ms.sim.planner import choose
from vpp_ms.sim.scenario import ModelCard, load_scenario
from vpp_ms.sim.workload import Ask

ROOT = Path(__file__).parents[3]
PAPER = ROOT / "yaml_configs/paper"
K = 1024

# Parameters in all and active per token, in billions, as published.
PUBLISHED = {"deepseek_v31": (671, 37), "qwen3_235b": (235, 22), "glm_45": (355, 32)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_card_adds_up_to_what_is_published(name):
    spec = read_form(PAPER / f"models/{name}.yaml", ModelCard).spec()
    tables = 2 * spec.vocab_size * spec.hidden_size
    every = tables + sum(layer_parameters(spec, layer) for layer in range(spec.num_layers))
    kinds = [spec.layer_kind(layer) for layer in range(spec.num_layers)]
    active = sum(layer_flops(spec, kind).token for kind in kinds) / 2 + tables / 2
    total, per_token = PUBLISHED[name]
    assert every / 1e9 == pytest.approx(total, rel=0.02)
    assert active / 1e9 == pytest.approx(per_token, rel=0.06)


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_that_ships_runs_on_16_devices_and_beats_the_named_methods(
    path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    scenario = load_scenario(path)
    parallel = scenario.parallel_config
    assert parallel.pipeline_stage * parallel.model_parallel == 16
    choice = choose(scenario.problem((Ask(64 * K),)))
    plan = choice.best.sketch.plan
    assert max(m.total_bytes for m in plan.memory) <= choice.problem.footprint.memory_bytes
    for alternative in choice.alternatives:
        if alternative.prediction is not None:
            assert choice.best.makespan_s <= alternative.prediction.makespan_s * (1 + 1e-12)


def scenario_with(tmp_path, **changes):
    data = yaml.safe_load((PAPER / "glm_45_pp4_tp4.yaml").read_text())
    data["model"] = str(PAPER / "models/glm_45.yaml")
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump({**data, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workloads": {}}, r"workloads: unknown key.*try: workload"),
        ({"workload": {"kind": "strem"}}, r"workload.kind: \"strem\""),
        ({"workload": {"kind": "stream", "count": 0}}, r"workload.count: 0"),
        ({"vpp": {"method": "fast"}}, r"vpp.method"),
        ({"device": "ascend_910x"}, r"'ascend_910x'.*try: ascend_910c"),
        ({"model": "nowhere.yaml"}, "nowhere.yaml: no such file"),
        ({"parallel_config": {"pipeline_stage": 4, "model_parallel": 5}}, "divisor of the model's"),
    ],
)
def test_a_bad_scenario_is_one_clear_line(tmp_path, changes, says):
    with pytest.raises(ConfigError, match=says) as error:
        load_scenario(scenario_with(tmp_path, **changes)).problem()
    assert "\n" not in str(error.value)


def test_what_no_device_can_hold_is_one_clear_line(tmp_path):
    parallel = {"parallel_config": {"pipeline_stage": 2, "model_parallel": 2}}
    with pytest.raises(PlanError, match=r"memory of rank \d: .*weights.*allowed: 64.0 GiB"):
        choose(load_scenario(scenario_with(tmp_path, **parallel)).problem())
