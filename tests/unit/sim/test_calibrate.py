"""Calibration: it finds the costs behind a trace, says how sure it is, and refuses what it must."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.sim.sim_problems import MOE, run_config
from vpp_ms.errors import VppError
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import make_plan
from vpp_ms.sim.calibrate import CalibrationError, calibrate
from vpp_ms.sim.costs import derive
from vpp_ms.sim.device import load_card
from vpp_ms.sim.simulate import run, simulate
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.events import Trace
from vpp_ms.trace.metrics import measure

FOOTPRINT = Footprint(4, 4)
SPEC = replace(MOE, dense_layers=(0, 1))
COSTS = derive(SPEC, load_card("cpu_core"), FOOTPRINT)


def plan_for(length, method="vpp", spec=SPEC, **chunking):
    config = run_config(2, method, chunking={"chunk_tokens": 512, **chunking})
    return make_plan(config, spec, (length,), new_tokens=(1,))


def trace_of(length=8000, method="vpp", jitter=0.0, seed=0, asks=None, **chunking):
    plan = plan_for(length, method, **chunking)
    return simulate(plan, COSTS, asks or (Ask(length),), jitter=jitter, seed=seed)


@pytest.mark.parametrize("method", ["cpp", "vpp"])
def test_without_noise_it_predicts_other_runs_exactly(method):
    fitted = calibrate({"a": trace_of(method=method, chunk_tokens=640)}, SPEC, FOOTPRINT)
    assert fitted.residual < 0.005
    for other, length, chunk in (("cpp", 5000, 256), ("vpp", 20000, 1024), ("dcpp", 9000, 700)):
        plan = plan_for(length, other, chunk_tokens=chunk)
        expected, found = (
            run(plan, costs, (Ask(length),)).walk.makespan_s for costs in (COSTS, fitted.costs)
        )
        assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_with_noise_it_is_near_and_says_how_sure_it_is(seed):
    traces = {
        str(chunk): trace_of(jitter=0.05, seed=seed, chunk_tokens=chunk) for chunk in (384, 640)
    }
    fitted = calibrate(traces, SPEC, FOOTPRINT)
    assert 0.02 < fitted.residual < 0.1
    for kind, part in fitted.costs.model.layers.items():
        true = COSTS.model.layers[kind]
        assert part.pair_s == pytest.approx(true.pair_s, rel=0.1)
        assert part.token_s == pytest.approx(true.token_s, rel=0.6 if kind == "dense" else 0.15)
    assert all(0.0 <= error < 2.0 for error in fitted.uncertainty.values())


def test_a_few_wild_actions_do_not_spoil_it():
    trace = trace_of()
    events = list(trace.events)
    wild = [i for i, e in enumerate(events) if e.kind == "compute"][3:60:19]
    for i in wild:
        events[i] = events[i]._replace(end_s=events[i].start_s + 4 * events[i].duration_s)
    spoilt = replace(trace, events=tuple(events))
    part = calibrate({"a": spoilt}, SPEC, FOOTPRINT).costs.model.layers["moe"]
    assert part.token_s == pytest.approx(COSTS.model.layers["moe"].token_s, rel=0.05)


def test_what_is_often_slower_fits_on_the_mean():
    """Every fifth action takes 1.2 times as long: the sum is 4 % more than most actions say."""
    trace = trace_of()
    events = list(trace.events)
    slow = [i for i, e in enumerate(events) if e.kind == "compute"][::5]
    for i in slow:
        events[i] = events[i]._replace(end_s=events[i].start_s + 1.2 * events[i].duration_s)
    fitted = calibrate({"a": replace(trace, events=tuple(events))}, SPEC, FOOTPRINT)
    table_nS = fitted.costs.model.for_stages(plan_for(8000).stages).table(Cargo.of(trace).segments)
    took_s = sum(e.end_s - e.start_s for e in events if e.kind == "compute")
    assert table_nS.sum() == pytest.approx(took_s, rel=0.01)


def test_stages_of_different_depth_tell_a_message_from_a_layer():
    spec = replace(MOE, num_layers=8)
    costs = derive(spec, load_card("cpu_core"), FOOTPRINT)
    vpp = {"layer_split": (1, 3, 1, 3)}
    config = run_config(2, "vpp", vpp=vpp, chunking={"chunk_tokens": 1024, "method": "tail"})
    plan = make_plan(config, spec, (8000,), new_tokens=(1,))
    model = calibrate({"a": simulate(plan, costs, (Ask(8000),))}, spec, FOOTPRINT).costs.model
    assert model.message.token_s == pytest.approx(costs.model.message.token_s, rel=0.05)
    layer, true = model.layers["moe"], costs.model.layers["moe"]
    assert layer.token_s == pytest.approx(true.token_s, rel=0.02)


def test_the_link_is_fitted_too():
    link = calibrate({"a": trace_of()}, SPEC, FOOTPRINT).costs.link
    assert link.latency_s == pytest.approx(COSTS.link.latency_s, rel=0.05)
    assert link.byte_s == pytest.approx(COSTS.link.byte_s, rel=0.05)
    assert (link.token_bytes, link.row_bytes) == (COSTS.link.token_bytes, COSTS.link.row_bytes)


def test_decode_tokens_are_left_out():
    plan = make_plan(run_config(2, "vpp"), SPEC, (8000,), new_tokens=(40,))
    with_tokens = simulate(plan, COSTS, (Ask(8000, 40),))
    fitted = calibrate({"a": with_tokens}, SPEC, FOOTPRINT)
    assert fitted.num_samples == 16 * 4


def test_traces_of_another_model_are_refused():
    other = replace(SPEC, num_heads=4)
    with pytest.raises(CalibrationError, match=r"run1: a trace of model \w+; allowed: \w+"):
        calibrate({"run1": trace_of()}, other, FOOTPRINT)


def test_traces_that_do_not_say_what_ran_are_refused():
    bare = replace(trace_of(), meta={"method": "vpp"})
    with pytest.raises(VppError, match="run1: does not say which micro-batches"):
        calibrate({"run1": bare}, SPEC, FOOTPRINT)


def stretched(trace: Trace, factor) -> Trace:
    """Each compute takes as long as `factor` of its micro-batch says."""
    events = tuple(
        e._replace(end_s=e.start_s + factor(e.micro_batch)) if e.kind == "compute" else e
        for e in trace.events
    )
    return replace(trace, events=events)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: {}, "no trace"),
        (lambda: {"a": trace_of(500)}, "prefill actions; allowed: at least 12"),
        (lambda: {"a": trace_of(512, asks=(Ask(512),) * 9)}, "too alike"),
        (lambda: {"a": trace_of(jitter=0.6)}, "scatter|lost in the noise"),
        (lambda: {"a": stretched(trace_of(), lambda i: 1.0)}, "do not grow|scatter|lost"),
        (lambda: {"a": stretched(trace_of(), lambda i: 20.0 - i)}, "do not grow|scatter|lost"),
    ],
)
def test_data_that_cannot_carry_a_model_are_refused_with_a_reason(make, says):
    with pytest.raises(CalibrationError, match=says) as error:
        calibrate(make(), SPEC, FOOTPRINT)
    assert "\n" not in str(error.value)


def test_a_measured_trace_and_a_simulated_one_have_the_same_figures():
    """What is simulated from a fit is measured like any run."""
    fitted = calibrate({"a": trace_of()}, SPEC, FOOTPRINT)
    again = simulate(plan_for(8000), fitted.costs, (Ask(8000),))
    assert measure(again).bubble_ratio == pytest.approx(measure(trace_of()).bubble_ratio, abs=0.005)
