"""`method: auto`: walk a few candidates in virtual time and keep the shortest.

The candidates are placement x virtual stages x chunking. Each is planned, cut, packed, ordered
and walked by the very code that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.plan import Plan, make_plan
from vpp_ms.schedule.packing import cut_prompt, pack
from vpp_ms.schedule.policy import Prioritizer
from vpp_ms.schedule.walk import Hop, Walk, walk
from vpp_ms.schedule.window import Window

# Assumed until measured, in tokens' worth of one layer's products: what starting a layer, a
# stage and a message costs. They keep the choice from cutting ever finer for free.
LAYER_LAUNCH_TOKENS, STAGE_LAUNCH_TOKENS, HOP_TOKENS = 4, 16, 32
PLACEMENTS = (("plain", 1), ("v", 2), ("loop", 2), ("v", 4), ("loop", 4))
CHUNKINGS = ("fixed", "tail")
WORTHWHILE = 0.98  # an earlier (plainer) candidate stays unless a later one is 2 % shorter


@dataclass(frozen=True)
class Candidate:
    config: RunConfig
    makespan_s: float
    bubble_ratio: float


def resolve_auto(
    config: RunConfig, spec: ModelSpec, prompt_lengths: Sequence[int] = ()
) -> RunConfig:
    """The configuration with what `auto` stands for filled in; others are returned as they are.

    Without prompts one of `model.max_seq_len` is assumed. The same on every rank. Raises
    PlanError when no candidate can be planned.
    """
    if config.vpp.method != "auto":
        return config
    best: Candidate | None = None
    for candidate in candidates(config, spec, prompt_lengths):
        if best is None or candidate.makespan_s < WORTHWHILE * best.makespan_s:
            best = candidate
    assert best is not None
    return best.config


def candidates(
    config: RunConfig, spec: ModelSpec, prompt_lengths: Sequence[int] = ()
) -> Iterator[Candidate]:
    """All plannable candidates, plainest first, with what an ideal walk predicts for them."""
    refusal, found = None, False
    for filled in _filled(config):
        try:
            plan = make_plan(filled, spec, prompt_lengths)
        except PlanError as error:
            refusal = refusal or error
            continue
        found = True
        run = predict(plan, spec, prompt_lengths or (plan.max_tokens,))
        yield Candidate(filled, run.makespan_s, run.bubble_ratio)
    if not found and refusal is not None:
        raise refusal


def assumed_cost(spec: ModelSpec) -> tuple[CostModel, float]:
    """A cost model from FLOPs with assumed launches, and the time of a message."""
    token_s = max(part.token_s for part in CostModel.of(spec).layers.values())
    cost = CostModel.of(
        spec,
        layer_launch_s=LAYER_LAUNCH_TOKENS * token_s,
        stage_launch_s=STAGE_LAUNCH_TOKENS * token_s,
    )
    return cost, HOP_TOKENS * token_s


def predict(plan: Plan, spec: ModelSpec, prompt_lengths: Sequence[int]) -> Walk:
    """The plan's prefill of these prompts in virtual time, under its own window."""
    cost, hop_s = assumed_cost(spec)
    segments = [
        segment
        for request, length in enumerate(prompt_lengths)
        for segment in cut_prompt(request, length, plan.chunking)
    ]
    groups = pack(segments, plan.chunking.chunk_tokens)
    costs_nS = cost.for_stages(plan.stages).table(groups)
    dearest_s = float(costs_nS.sum(axis=1).max()) / plan.placement.num_ranks
    window = Window.of(plan.window.micro_batches, plan.window.time_chunks, dearest_s)
    batches = Prioritizer(plan.placement, plan.order, window).add(groups, costs_nS)
    hop = Hop(latency_s=hop_s)
    return walk(
        plan.placement, batches, costs_nS, hop_of=lambda link, mb: hop, window=window.fresh()
    )


def _filled(config: RunConfig) -> Iterator[RunConfig]:
    """Explicit keys win, so they leave only one value to try."""
    vpp, chunking = config.vpp, config.chunking
    methods = (chunking.method,) if chunking.method else CHUNKINGS
    seen = set()
    for (kind, virtual_stages), method in product(PLACEMENTS, methods):
        kind = vpp.placement or kind
        virtual_stages = vpp.virtual_stages or virtual_stages
        if (kind, virtual_stages, method) in seen:
            continue
        seen.add((kind, virtual_stages, method))
        yield config.model_copy(
            update={
                "vpp": vpp.model_copy(update={"placement": kind, "virtual_stages": virtual_stages}),
                "chunking": chunking.model_copy(update={"method": method}),
            }
        )
