"""`Plan`: everything that all ranks must agree on, decided before the first of them computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.errors import PlanError, RequestError
from vpp_ms.plan.chunking import DYNAMIC_METHODS, ChunkRule, chunk_rule
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.latency import Fit, LatencyModel
from vpp_ms.plan.memory import Footprint, RankMemory
from vpp_ms.plan.partition import check_enough_layers, partition
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.pool import Layout, check_memory
from vpp_ms.plan.stages import StageSpec, WindowSpec
from vpp_ms.plan.turns import partition_by_turns


@dataclass(frozen=True)
class Plan:
    """`hash` covers all fields but `notes` and `latency_source`.

    `max_tokens` bounds prompt plus output of one request; `limits` are the two it comes from.
    `latency_source` is "given", "profiled", "costs" (known beforehand), "derived" (from FLOPs, fit
    for display only) or "none" (chunks need no latency). `notes` says in words what was decided
    for the user.
    """

    method: str
    placement: Placement
    stages: tuple[StageSpec, ...]
    chunking: ChunkRule
    order: str | float
    window: WindowSpec
    block_size: int
    num_blocks: int
    limits: tuple[tuple[str, int], ...]
    dtype: str
    model: str
    memory: tuple[RankMemory, ...]
    latency_source: str = field(default="none", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def hash(self) -> str:
        fields = asdict(replace(self, latency_source="", notes=()))
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def needs_latency(self) -> bool:
        """Dynamic chunks were asked for and no measured latency has been given yet."""
        return self.latency_source == "derived"

    @property
    def num_turns(self) -> int:
        """Requests whose numbers differ by this have their layers on the same ranks."""
        return self.stages[0].num_turns

    @property
    def max_tokens(self) -> int:
        return min(limit for _, limit in self.limits)

    def stages_of(self, rank: int) -> tuple[StageSpec, ...]:
        return tuple(stage for stage in self.stages if stage.rank == rank)

    def check_request(self, where: str, prompt_tokens: int, new_tokens: int = 0) -> None:
        """Raises RequestError for an empty prompt and for one that is too long, naming both
        limits."""
        if prompt_tokens < 1:
            raise RequestError(where, "empty prompt", allowed="at least one token")
        if prompt_tokens + new_tokens > self.max_tokens:
            limits = " and ".join(f"{name} = {limit}" for name, limit in self.limits)
            raise RequestError(
                where,
                f"{prompt_tokens} prompt + {new_tokens} new tokens",
                allowed=f"{self.max_tokens} in all ({limits})",
            )


def make_plan(
    config: RunConfig,
    spec: ModelSpec,
    prompt_lengths: Sequence[int] = (),
    latency: LatencyModel | Fit | None = None,
    new_tokens: Sequence[int] = (),
    cost: CostModel | None = None,
    footprint: Footprint | None = None,
) -> Plan:
    """The plan of one configuration; the same arguments give the same plan on every rank.

    `latency` is a profile's result; a Fit without a model leads to fixed chunks and a note.
    `prompt_lengths` (with `new_tokens` for each, default `input.max_new_tokens`) size the KV
    pool. `cost` balances the layers and sizes dynamic chunks where no `latency` is given (default:
    counted FLOPs, which a profile is to replace). `footprint` says how numbers are
    stored and what a device holds (default: the compute dtype, no limit). Raises PlanError.
    """
    _check_parallel(config)
    placement = _placement(config)
    check_enough_layers(placement, spec.num_layers)
    limits = _limits(config, spec)
    longest = max(prompt_lengths, default=min(limit for _, limit in limits))
    derived = "derived" if cost is None else "costs"
    cost = cost or CostModel.of(spec)
    stages = _stages(config, cost, placement, longest)
    chunking, source, notes = _chunking(config, cost, latency, derived)
    footprint = footprint or Footprint.of_config(config)
    wanted = new_tokens or (config.input.max_new_tokens,) * len(prompt_lengths)
    totals = [p + n for p, n in zip(prompt_lengths, wanted, strict=True)] or [longest]
    window = WindowSpec(
        config.vpp.window.micro_batches or 4 * placement.num_ranks,
        config.vpp.window.time_chunks,
    )
    layout = Layout(spec, placement, stages, chunking, window, config.kv.block_size, footprint)
    num_blocks = layout.num_blocks(config.kv, totals)
    memory = tuple(layout.memory(rank, num_blocks) for rank in range(placement.num_ranks))
    check_memory(memory, footprint)
    return Plan(
        method=config.vpp.method,
        placement=placement,
        stages=stages,
        chunking=chunking,
        order=config.vpp.order,
        window=window,
        block_size=config.kv.block_size,
        num_blocks=num_blocks,
        limits=limits,
        dtype=config.model.compute_dtype,
        model=fingerprint(spec),
        memory=memory,
        latency_source=source,
        notes=notes,
    )


def fingerprint(spec: ModelSpec) -> str:
    """Tells one model from another in plans and traces."""
    return hashlib.sha256(repr(spec).encode()).hexdigest()[:16]


def _check_parallel(config: RunConfig) -> None:
    parallel = config.parallel_config
    for key in ("model_parallel", "expert_parallel"):
        if key == "model_parallel" and config.is_emulated:
            continue  # only the predicted times know of it
        if getattr(parallel, key) > 1:
            raise PlanError(
                f"parallel_config.{key}",
                getattr(parallel, key),
                allowed=f"1 on {config.context.device_target}",
                hint="parallel_config.pipeline_stage is the way to use more ranks",
            )


def _placement(config: RunConfig) -> Placement:
    """What `vpp.method` stands for; keys given explicitly win."""
    kind, virtual_stages = {
        "cpp": ("plain", 1),
        "dcpp": ("plain", 1),
        "vpp": ("v", 2),
        "auto": (None, None),
    }[config.vpp.method]
    kind = config.vpp.placement or kind
    if kind is None:
        raise PlanError(
            "vpp.placement",
            "not chosen yet",
            allowed="plain, loop, v",
            hint="let the automatic choice fill the configuration in before it is planned",
        )
    virtual_stages = config.vpp.virtual_stages or (1 if kind == "plain" else virtual_stages or 2)
    return Placement(kind, config.parallel_config.pipeline_stage, virtual_stages)


def _limits(config: RunConfig, spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    own = ("the model's max_position", spec.max_position)
    wanted = config.model.max_seq_len
    if wanted is None:
        return (own,)
    if wanted > spec.max_position:
        raise PlanError(
            "model.max_seq_len", wanted, allowed=f"at most the model's {spec.max_position}"
        )
    return ("model.max_seq_len", wanted), own


def _stages(
    config: RunConfig, cost: CostModel, placement: Placement, longest: int
) -> tuple[StageSpec, ...]:
    """Layers balanced for a typical chunk: half the longest prompt before it, and the head's
    row paid once per prompt."""
    chunk = min(config.chunking.chunk_tokens, longest)
    layer_costs = cost.layer_costs(start=longest // 2, length=chunk)
    ends = cost.embedding.token_s * chunk, cost.head.sample_s * chunk / longest
    split = config.vpp.layer_split
    if split == "turns":
        turns = partition_by_turns(placement, layer_costs, *ends)
    else:
        turns = (partition(placement, len(layer_costs), split, layer_costs, *ends),)
    last = placement.num_stages - 1
    return tuple(
        StageSpec(
            index,
            placement.rank_of(index),
            min(first for first, _ in ranges),
            max(end for _, end in ranges),
            index == 0,
            index == last,
            ranges if len(turns) > 1 else (),
        )
        for index, ranges in enumerate(zip(*turns, strict=True))
    )


def _chunking(
    config: RunConfig, cost: CostModel, latency: LatencyModel | Fit | None, derived: str
) -> tuple[ChunkRule, str, tuple[str, ...]]:
    """Rule, where its latency comes from, notes."""
    preset = {"cpp": "fixed", "dcpp": "dynamic", "vpp": "fixed", "auto": "fixed"}
    method = config.chunking.method or preset[config.vpp.method]
    if method not in DYNAMIC_METHODS:
        return chunk_rule(config.chunking, method)[0], "none", ()
    if config.chunking.latency is not None:
        source, latency = "given", LatencyModel(*config.chunking.latency)
    elif latency is not None:
        source = "profiled"
    else:
        source, latency = derived, LatencyModel(*cost.latency_terms())
    rule, reason = chunk_rule(config.chunking, method, latency)
    if reason is not None:
        return rule, source, (f"fixed chunks instead of dynamic ones: {reason}",)
    return rule, source, ()
