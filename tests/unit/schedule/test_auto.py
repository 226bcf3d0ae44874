"""The automatic choice: never longer than a named method in its own model, same on all ranks."""

from __future__ import annotations

import pytest

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.plan import make_plan
from vpp_ms.schedule.auto import WORTHWHILE, candidates, predict, resolve_auto

SPEC = ModelSpec("toy", 24, 512, 8, 2, 64, 1000, 768, 65536, moe=MoESpec(16, 4, 256))


def config(method="auto", **sections):
    sections["vpp"] = {"method": method, **sections.get("vpp", {})}
    return RunConfig(pretrained_model_dir="model", **sections)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("lengths", [(8192,), (3000,), (300,), (4096,) * 3, (200,) * 10])
def test_the_choice_is_about_the_best_that_was_tried(num_ranks, lengths):
    ranks = {"pipeline_stage": num_ranks}
    wanted = config(parallel_config=ranks)
    chosen = resolve_auto(wanted, SPEC, lengths)
    assert chosen.vpp.method == "auto"
    assert chosen == resolve_auto(wanted, SPEC, lengths)
    found = predict(make_plan(chosen, SPEC, lengths), SPEC, lengths).makespan_s
    assert found <= min(c.makespan_s for c in candidates(wanted, SPEC, lengths)) / WORTHWHILE
    for method in ("cpp", "vpp"):
        named = make_plan(config(method, parallel_config=ranks), SPEC, lengths)
        assert found <= predict(named, SPEC, lengths).makespan_s / WORTHWHILE


def test_one_short_prompt_stays_plain_and_a_long_one_does_not():
    assert resolve_auto(config(), SPEC, (300,)).vpp.placement == "plain"
    assert resolve_auto(config(), SPEC, (8192,)).vpp.placement != "plain"


def test_keys_given_explicitly_win():
    chosen = resolve_auto(
        config(vpp={"placement": "loop", "virtual_stages": 3}, chunking={"method": "tail"}),
        SPEC,
        (8192,),
    )
    assert (chosen.vpp.placement, chosen.vpp.virtual_stages) == ("loop", 3)
    assert chosen.chunking.method == "tail"


def test_other_methods_are_left_alone():
    named = config("cpp")
    assert resolve_auto(named, SPEC) is named


def test_few_layers_leave_few_candidates():
    small = ModelSpec("toy", 5, 32, 4, 2, 8, 97, 64, 128)
    wanted = config(parallel_config={"pipeline_stage": 4})
    assert {c.config.vpp.placement for c in candidates(wanted, small, (100,))} == {"plain"}
    with pytest.raises(PlanError, match=r"6 stages.*5 layers"):
        resolve_auto(config(parallel_config={"pipeline_stage": 6}), small, (100,))
