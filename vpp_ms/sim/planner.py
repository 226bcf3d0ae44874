"""`method: auto`: the shortest plan that a search in virtual time finds, and why it was chosen.

Best first: every candidate is bounded from below without a walk; a walk tells how far the
candidate's family (placement, layers, chunking, order) stays above its bounds, and bounds raised by
that share, less of it for smaller chunks, say which candidate is walked next. Every candidate is
planned, cut, packed, fed and walked by the code that runs it, so the choice is a plan like any
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.memory import Footprint
from vpp_ms.plan.partition import even_counts, partition
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.turns import partition_by_turns
from vpp_ms.schedule.policy import BEST, FEW_ACTIONS, LEANS
from vpp_ms.sim.candidates import (
    Frame,
    Order,
    Split,
    aligned,
    chunk_sizes,
    chunkings,
    fill,
    leans,
    named,
    placements,
    windows,
)
from vpp_ms.sim.choice import Alternative, Choice, as_auto, describe
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.defaults import costs_of
from vpp_ms.sim.problem import Prediction, Problem, Sketch
from vpp_ms.sim.workload import Ask

MAX_WALKED_ACTIONS = 1_500_000  # about 8 s
MAX_ACTIONS_PER_WALK = 30_000  # of a stream, only the first requests are walked while searching
SAME = 0.998  # a plainer plan within 0.2 % is preferred
WORTH_TRYING = 0.001  # of a bound: what an order could still gain
FIRST_LEANS = (0.0, math.inf, -2.0)
FINE_STEPS = tuple(2.0 ** (sign / part) for part in (4, 8, 16, 32) for sign in (1, -1))


def resolve_auto(
    config: RunConfig,
    spec: ModelSpec,
    prompt_lengths: Sequence[int] = (),
    costs: Costs | None = None,
) -> RunConfig:
    """The configuration with what `auto` stands for filled in; others are returned as they are.

    Without prompts one of the longest that is allowed is assumed. The same on every rank. Raises
    PlanError when nothing can be planned.
    """
    if config.vpp.method != "auto":
        return config
    return choose(
        auto_problem(config, spec, costs or costs_of(config, spec), prompt_lengths)
    ).config


def auto_problem(
    config: RunConfig, spec: ModelSpec, costs: Costs, prompt_lengths: Sequence[int] = ()
) -> Problem:
    """The problem of one run on this machine: prefill of these prompts, or of a longest one."""
    longest = min(config.model.max_seq_len or spec.max_position, spec.max_position)
    asks = tuple(Ask(length) for length in (*prompt_lengths,) or (longest,))
    return Problem(config, spec, costs, Footprint.of_config(config), asks)


def choose(problem: Problem) -> Choice:
    """The best plan for the problem. Raises PlanError when nothing can be planned."""
    search = _Search(problem)
    search.coarse()
    search.refine()
    return search.choice()


class _Key(NamedTuple):
    """One candidate. Frame and order make its family."""

    frame: Frame
    order: Order
    size: int

    @property
    def family(self) -> tuple[Frame, Order]:
        return self.frame, self.order


@dataclass
class _Search:
    problem: Problem
    split_of: dict[tuple[str, int, str], Split] = field(default_factory=dict)
    sketches: dict[tuple[Frame, int], Sketch | None] = field(default_factory=dict)
    open: dict[_Key, None] = field(default_factory=dict)  # in order of proposal, which breaks ties
    scores_s: dict[_Key, float] = field(default_factory=dict)
    predictions: dict[_Key, Prediction] = field(default_factory=dict)
    excess: dict[tuple[Frame, Order], tuple[float, int]] = field(default_factory=dict)
    walked_actions: int = 0
    refusals: dict[Frame, PlanError] = field(default_factory=dict)  # of the smallest chunk

    def coarse(self) -> None:
        """Walk what looks best until nothing does any more."""
        for frame in self._frames():
            for size in self._sizes:
                self._propose(frame, size, FIRST_LEANS)
        if not self.open:
            raise next(iter(self.refusals.values()))
        self._walk_best_first()

    def refine(self) -> None:
        """Around the best placements: all leans where a bound leaves room, then finer sizes."""
        for key in self._leaders(3):
            if self.excess[key.family][0] > 1.0 + WORTH_TRYING:
                is_small = self._ordered(key).num_actions < FEW_ACTIONS
                self._propose(key.frame, key.size, (*LEANS, BEST) if is_small else LEANS)
        self._walk_best_first()
        for step in FINE_STEPS:
            for key in self._leaders(3):
                size = min(max(int(key.size * step), self._sizes[-1]), self._sizes[0])
                self._propose(key.frame, aligned(self.problem.config, size), (key.order,))
            self._walk_best_first()

    def choice(self) -> Choice:
        """The plainest of the best, never behind a named method."""
        leaders = [self._predict(key) for key in self._leaders(10)]
        alternatives = list(self._named(min(p.makespan_s for p in leaders)))
        by_name = [a.prediction for a in alternatives if a.prediction is not None]
        candidates = leaders + [replace(p, sketch=as_auto(p.sketch)) for p in by_name]
        limit_s = min(p.makespan_s for p in candidates) / SAME
        limit_s = min([limit_s, *(p.makespan_s for p in by_name)])
        best = min(
            (p for p in candidates if p.makespan_s <= limit_s),
            key=lambda p: (p.sketch.plan.placement.num_stages, p.makespan_s),
        )
        best = self._narrowed(best, limit_s)
        alternatives += [Alternative(f"auto, {describe(p)}", p) for p in leaders]
        num_candidates = len(self.scores_s) + len(self.open)
        return Choice(self.problem, best, tuple(alternatives), num_candidates, len(self.scores_s))

    def _narrowed(self, best: Prediction, limit_s: float) -> Prediction:
        """In a narrower window, where that costs next to nothing."""
        config, placement = best.config, best.sketch.plan.placement
        for window in reversed(windows(self.problem.config, placement.virtual_stages)):
            if window >= best.sketch.plan.window.micro_batches:
                break
            narrow = config.vpp.window.model_copy(update={"micro_batches": window})
            vpp = config.vpp.model_copy(update={"window": narrow})
            found = self.problem.predict(
                self.problem.sketch(config.model_copy(update={"vpp": vpp}))
            )
            if found.makespan_s <= min(limit_s, best.makespan_s / SAME):
                return found
        return best

    def _named(self, best_s: float) -> Iterator[Alternative]:
        for name, config in named(self.problem.config).items():
            try:
                sketch = self.problem.sketch(config)
            except PlanError as error:
                yield Alternative(name, refused=str(error))
                continue
            bound_s = sketch.bounds.makespan_s
            if sketch.num_actions > MAX_ACTIONS_PER_WALK and bound_s > best_s:
                yield Alternative(name, at_least_s=bound_s)
            else:
                yield Alternative(name, self.problem.predict(sketch))

    def _predict(self, key: _Key) -> Prediction:
        if key not in self.predictions:
            self.predictions[key] = self.problem.predict(self._ordered(key))
        return self.predictions[key]

    @cached_property
    def _sizes(self) -> list[int]:
        return chunk_sizes(self.problem.config, max(self.problem.lengths))

    def _frames(self) -> Iterator[Frame]:
        config, num_layers = self.problem.config, len(self.problem.costs.model.layer_kinds)
        for placement in placements(config, num_layers):
            splits: dict[Split, str] = {
                self._balanced(placement): "balanced",
                even_counts(num_layers, placement.num_stages): "even",
            }
            if self._shares(placement):
                splits["turns"] = "turns"
            for (counts, split), how in product(splits.items(), chunkings(config)):
                frame = Frame(placement.kind, placement.virtual_stages, split, *how)
                self.split_of[frame[:3]] = counts
                yield frame

    def _balanced(self, placement: Placement) -> tuple[int, ...]:
        """Layers per stage, ranks balanced."""
        layer_costs, *ends = self._layer_costs
        ranges = partition(placement, len(layer_costs), "auto", layer_costs, *ends)
        return tuple(end - first for first, end in ranges)

    def _shares(self, placement: Placement) -> bool:
        """Whether ranks would share layers by turns: they cannot be balanced without."""
        if placement.num_ranks == 1 or len(self.problem.asks) == 1:
            return False
        try:
            return len(partition_by_turns(placement, *self._layer_costs)) > 1
        except PlanError:
            return False

    @cached_property
    def _layer_costs(self) -> tuple[tuple[float, ...], float, float]:
        """What a chunk costs each layer at the requests' mean context, the embedding, the head."""
        model, asks = self.problem.costs.model, self.problem.asks
        tokens = sum(ask.prompt_tokens - ask.cached_tokens for ask in asks)
        pairs = sum(ask.prompt_tokens**2 - ask.cached_tokens**2 for ask in asks) / 2
        length = self._sizes[len(self._sizes) // 2]
        return (
            model.layer_costs(max(int(pairs / tokens - length / 2), 0), length),
            model.embedding.token_s * length,
            model.head.sample_s * length * len(asks) / tokens,
        )

    def _propose(self, frame: Frame, size: int, orders: Sequence[Order]) -> None:
        if (frame, size) not in self.sketches:
            self.sketches[frame, size] = self._sketch(frame, size)
        if self.sketches[frame, size] is None:
            return
        for order in leans(self.problem.config, frame.virtual_stages, orders):
            key = _Key(frame, order, size)
            if key not in self.scores_s:
                self.open[key] = None

    def _sketch(self, frame: Frame, size: int) -> Sketch | None:
        """Under the widest window that fits into memory; None, and why kept, if none does."""
        for window in windows(self.problem.config, frame.virtual_stages):
            split, latency = self.split_of[frame[:3]], self.problem.given_latency_ms
            filled = fill(self.problem.config, frame, split, size, window, latency)
            try:
                return self.problem.sketch(filled)
            except PlanError as error:
                self.refusals[frame] = error
        return None

    def _ordered(self, key: _Key) -> Sketch:
        """The sketch in the key's order: bounds hold for any."""
        sketch = self.sketches[key.frame, key.size]
        assert sketch is not None
        vpp = sketch.config.vpp.model_copy(update={"order": key.order})
        config = sketch.config.model_copy(update={"vpp": vpp})
        return replace(sketch, config=config, plan=replace(sketch.plan, order=key.order))

    def _walk_best_first(self) -> None:
        best_s = min(self.scores_s.values(), default=math.inf)
        while self.open and self.walked_actions < MAX_WALKED_ACTIONS:
            key = min(self.open, key=self._expected_s)
            if self._expected_s(key) >= best_s:
                return
            del self.open[key]
            best_s = min(best_s, self._walk(key))

    def _expected_s(self, key: _Key) -> float:
        """What a plan loses on its bound shrinks with its chunks: it is their fill and drain, and
        the KV blocks that larger ones leave less room for."""
        sketch = self.sketches[key.frame, key.size]
        assert sketch is not None
        excess, size = self.excess.get(key.family, (1.0, key.size))
        return sketch.bounds.makespan_s * (1.0 + (excess - 1.0) * min(key.size / size, 1.0))

    def _walk(self, key: _Key) -> float:
        sketch, asks = self._ordered(key), self.problem.asks
        share = min(1.0, MAX_ACTIONS_PER_WALK / sketch.num_actions)
        count = max(min(len(asks), 3), int(share * len(asks)))
        self.walked_actions += int(sketch.num_actions * count / len(asks))
        if count == len(asks):
            score_s = self._predict(key).makespan_s
        else:
            score_s = self.problem.estimate_s(sketch, count)
        self.scores_s[key] = score_s
        found = score_s / sketch.bounds.makespan_s, key.size
        self.excess[key.family] = min(found, self.excess.get(key.family, found))
        return score_s

    def _leaders(self, count: int) -> list[_Key]:
        """The best of each placement, best first."""
        best: dict[tuple[str, int], _Key] = {}
        for key, _ in sorted(self.scores_s.items(), key=lambda item: item[1]):
            best.setdefault(key.frame[:2], key)
        return list(best.values())[:count]
