"""`vpp-ms simulate`, `calibrate` and `plan --auto`: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.test_plan_view import TINY
from vpp_ms.cli.main import BAD_INPUT, DONE, run_cli
from vpp_ms.config import load_config
from vpp_ms.model.registry import load_spec
from vpp_ms.plan import make_plan
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim import Ask, Costs, derive, load_card, simulate
from vpp_ms.trace import read_trace, write_trace

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    text = json.dumps({**TINY, "max_position_embeddings": 8192})
    (tmp_path / "model/config.json").write_text(text)
    path = tmp_path / "run.yaml"
    path.write_text(
        f"pretrained_model_dir: {tmp_path / 'model'}\nchunking: {{chunk_tokens: 256}}\n"
    )
    return str(path)


def shown(capture: Capture, *arguments: str) -> str:
    assert run_cli(arguments) == DONE
    return capture.readouterr().out


def refused(capture: Capture, *arguments: str) -> str:
    assert run_cli(arguments) == BAD_INPUT
    error = capture.readouterr().err
    assert len(error.strip().splitlines()) == 1
    return error


def test_simulate_plans_explains_and_leaves_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(ROOT)
    scenario, out = "yaml_configs/paper/qwen3_235b_pp2_tp8.yaml", tmp_path / "sim/trace.json"
    text = shown(capsys, "simulate", scenario, "--tokens", "65536", "--trace", str(out))
    assert text.startswith("SIMULATED: qwen3_235b on 2 ranks of 8 devices (ascend_910c)")
    assert "vendor: gemm_flops_per_s" in text and "assumed: gemm_efficiency" in text
    assert "dcpp vllm_ascend" in text and "chosen: " in text
    assert "no plan at all less than" in text and "the busiest rank idles" in text
    assert read_trace(out).origin == "simulated"


def test_simulate_refuses_what_does_not_fit_or_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(ROOT)
    scenario = "yaml_configs/paper/glm_45_pp4_tp4.yaml"
    error = refused(capsys, "simulate", scenario, "--tokens", "1048576")
    assert "memory of rank" in error and "GiB on one device" in error
    assert "no such file" in refused(capsys, "simulate", "nowhere.yaml")


def test_plan_auto_overrides_the_method_and_shows_the_alternatives(
    config: str, capsys: Capture
) -> None:
    text = shown(capsys, "plan", config, "--auto", "--tokens", "4000", "--set", "vpp.method=cpp")
    assert text.startswith("auto: placement")
    for row in ("cpp ", "dcpp sglang ", "vpp ", "chosen: "):
        assert f"\n {row}" in text
    assert "derived from device card cpu_core" in text


def test_calibrate_writes_costs_that_plan_then_uses(
    config: str, tmp_path: Path, capsys: Capture
) -> None:
    run_config = load_config(config, ["chunking.method=tail", "vpp.method=vpp"])
    spec = load_spec(run_config.pretrained_model_dir)
    plan = make_plan(run_config, spec, (4000,), new_tokens=(1,))
    true = derive(spec, load_card("cpu_core"), Footprint(4, 4))
    (tmp_path / "run").mkdir()
    write_trace(simulate(plan, true, (Ask(4000),)), tmp_path / "run/trace.json")
    out = tmp_path / "costs.json"
    text = shown(capsys, "calibrate", config, str(tmp_path / "run"), "--out", str(out))
    assert "layer: per token" in text and "misfit 0." in text and "1 trace" in text
    found = Costs.load(out).model.layers["moe"]
    assert found.token_s == pytest.approx(true.model.layers["moe"].token_s, rel=0.05)
    planned = shown(capsys, "plan", config, "--tokens", "4000", "--set", f"vpp.costs={out}")
    assert "calibrated from" in planned


def test_calibrate_refuses_traces_that_cannot_carry_it(
    config: str, tmp_path: Path, capsys: Capture
) -> None:
    assert "No such file" in refused(capsys, "calibrate", config, str(tmp_path / "trace.json"))
    run_config = load_config(config, ["vpp.method=vpp"])
    spec = load_spec(run_config.pretrained_model_dir)
    plan = make_plan(run_config, spec, (4096,), new_tokens=(1,))
    costs = derive(spec, load_card("cpu_core"), Footprint(4, 4))
    path = tmp_path / "alike.json"
    write_trace(simulate(plan, costs, (Ask(4096),)), path)
    error = refused(capsys, "calibrate", config, str(path))
    assert "too alike" in error and "chunks of several sizes" in error
