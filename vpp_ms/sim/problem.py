"""`Problem`: what a planner is asked, and what one configuration would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import ConfigError
from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.cost import features_nF
from vpp_ms.plan.latency import LatencyModel
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.plan import Plan, make_plan
from vpp_ms.schedule.actions import Segment
from vpp_ms.schedule.packing import cut_prompt, pack
from vpp_ms.sim.bounds import Bounds, lower_bounds
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.defaults import are_known
from vpp_ms.sim.simulate import run
from vpp_ms.sim.workload import Ask


@dataclass(frozen=True)
class Sketch:
    """A plan and what bounds say of it. `bounds` are of the prefill, arrivals left out."""

    config: RunConfig
    plan: Plan
    bounds: Bounds
    num_micro_batches: int

    @property
    def num_actions(self) -> int:
        return self.num_micro_batches * self.plan.placement.num_stages


@dataclass(frozen=True)
class Prediction:
    """A plan walked. `makespan_s` counts from time 0 to the last action's end."""

    sketch: Sketch
    makespan_s: float
    bubble_ratio: float

    @property
    def config(self) -> RunConfig:
        return self.sketch.config

    @property
    def gap(self) -> float:
        """How far above the bound, as a share of it; never below 0, rounding aside."""
        return max(self.makespan_s / self.sketch.bounds.makespan_s - 1.0, 0.0)


@dataclass(frozen=True)
class Problem:
    """`config` holds what is given; a planner fills in the rest."""

    config: RunConfig
    spec: ModelSpec
    costs: Costs
    footprint: Footprint
    asks: tuple[Ask, ...]

    def __post_init__(self) -> None:
        if not self.asks:
            raise ConfigError("workload", "no requests", allowed="at least one prompt")

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        return tuple(ask.prompt_tokens for ask in self.asks)

    @cached_property
    def latency(self) -> LatencyModel:
        """What sizes dynamic chunks."""
        return LatencyModel(*self.costs.model.latency_terms())

    @cached_property
    def given_latency_ms(self) -> tuple[float, ...] | None:
        """The same for ranks, where their times are these costs: measured before, or emulated.
        Else ranks profile themselves when they start."""
        if not are_known(self.config):
            return None
        latency = self.latency
        return tuple(1e3 * x for x in (latency.a, latency.b, latency.c, latency.gamma))

    @cached_property
    def floor_s(self) -> float:
        """No plan of any kind is faster: all prompts in one piece, shared evenly by all ranks."""
        whole = [
            Segment(slot, ask.cached_tokens, ask.prompt_tokens - ask.cached_tokens, sample=True)
            for slot, ask in enumerate(self.asks)
        ]
        model = self.costs.model
        layers = range(len(model.layer_kinds))
        total_s = model.stage_time_s(layers, whole, is_first=True, is_last=True)
        return total_s / self.config.parallel_config.pipeline_stage

    def plan(self, config: RunConfig) -> Plan:
        """Raises PlanError."""
        new_tokens = tuple(ask.new_tokens for ask in self.asks)
        return make_plan(
            config,
            self.spec,
            self.lengths,
            latency=self.latency,
            new_tokens=new_tokens,
            cost=self.costs.model,
            footprint=self.footprint,
        )

    def sketch(self, config: RunConfig) -> Sketch:
        """Plan, cut and bound, without a walk. Raises PlanError."""
        plan = self.plan(config)
        cargo = self._cargo_of.get((plan.chunking, plan.num_turns))
        if cargo is None:
            cargo = _Cargo.of(plan, self.asks)
            self._cargo_of[plan.chunking, plan.num_turns] = cargo
        return Sketch(config, plan, _bounds(plan, self.costs, cargo), len(cargo.x_nF))

    @cached_property
    def _cargo_of(self) -> dict[tuple[ChunkRule, int], _Cargo]:
        """What the requests are cut into depends on the chunk rule and the number of turns."""
        return {}

    def predict(self, sketch: Sketch) -> Prediction:
        """All requests, walked."""
        walked = run(sketch.plan, self.costs, self.asks).walk
        return Prediction(sketch, walked.makespan_s, walked.bubble_ratio)

    def estimate_s(self, sketch: Sketch, count: int) -> float:
        """The makespan as far as the first `count` requests show it: their own, and the work of
        the others, which adds no idle time in the middle of a stream."""
        first = self.asks[:count]
        walked = run(sketch.plan, self.costs, first).walk
        work_s = bounds_of(sketch.plan, self.costs, first).work_s
        return walked.makespan_s + sketch.bounds.work_s - work_s


def bounds_of(plan: Plan, costs: Costs, asks: Sequence[Ask]) -> Bounds:
    """What the prefill of these takes at least under a plan's placement and chunks."""
    return _bounds(plan, costs, _Cargo.of(plan, asks))


class _Cargo(NamedTuple):
    """Of each micro-batch its features and its first request."""

    x_nF: np.ndarray
    requests: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, asks: Sequence[Ask]) -> _Cargo:
        segments = [
            segment
            for slot, ask in enumerate(asks)
            for segment in cut_prompt(slot, ask.prompt_tokens, plan.chunking, ask.cached_tokens)
        ]
        groups = pack(segments, plan.chunking.chunk_tokens, plan.num_turns)
        return cls(features_nF(groups), tuple(group[0].request for group in groups))


def _bounds(plan: Plan, costs: Costs, cargo: _Cargo) -> Bounds:
    costs_nS = costs.model.for_stages(plan.stages).of_features(*cargo)
    return lower_bounds(plan.placement, costs_nS, _hops_nS(plan, costs, cargo.x_nF))


def _hops_nS(plan: Plan, costs: Costs, x_nF: np.ndarray) -> np.ndarray | None:
    link = costs.link
    if link.is_free:
        return None
    last = plan.placement.num_stages - 1
    crossing = [plan.placement.link_behind(stage) is not None for stage in range(last)]
    hop_n = link.latency_s + link.byte_s * link.token_bytes * x_nF[:, 1]
    return hop_n[:, None] * np.array([*crossing, False], float)
