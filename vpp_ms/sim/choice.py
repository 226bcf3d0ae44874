"""`Choice`: what a planner found, what else it looked at, and how that compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vpp_ms.config.schema import RunConfig
from vpp_ms.sim.problem import Prediction, Problem, Sketch


@dataclass(frozen=True)
class Alternative:
    """One row of the explanation: a prediction, or why there is none. `at_least_s` is the bound of
    a plan too fine to walk, and no better than the choice in any order."""

    name: str
    prediction: Prediction | None = None
    refused: str | None = None
    at_least_s: float | None = None


@dataclass(frozen=True)
class Choice:
    """`alternatives`: the named methods and the best of each placement, in that order."""

    problem: Problem
    best: Prediction
    alternatives: tuple[Alternative, ...]
    num_candidates: int
    num_walks: int

    @property
    def config(self) -> RunConfig:
        return self.best.config


def describe(prediction: Prediction) -> str:
    """A plan in a few words."""
    plan = prediction.sketch.plan
    kind, virtual_stages = plan.placement.kind, plan.placement.virtual_stages
    where = kind if virtual_stages == 1 else f"{kind} x{virtual_stages}"
    chunks = {"dynamic_tail": "dynamic, split tail", "tail": "fixed, split tail"}
    how = chunks.get(plan.chunking.method, plan.chunking.method)
    turns = " by turns" if plan.num_turns > 1 else ""
    return f"{where}{turns}, {how}, {plan.chunking.chunk_tokens} tokens"


def as_auto(sketch: Sketch) -> Sketch:
    """A named method's plan under the name auto, with all that its name stood for spelled out."""
    plan, vpp = sketch.plan, sketch.config.vpp
    spelled = {
        "method": "auto",
        "placement": plan.placement.kind,
        "virtual_stages": plan.placement.virtual_stages,
        "layer_split": (
            "turns" if plan.num_turns > 1 else tuple(stage.num_layers for stage in plan.stages)
        ),
        "window": vpp.window.model_copy(update={"micro_batches": plan.window.micro_batches}),
    }
    config = sketch.config.model_copy(update={"vpp": vpp.model_copy(update=spelled)})
    return replace(sketch, config=config, plan=replace(plan, method="auto"))
