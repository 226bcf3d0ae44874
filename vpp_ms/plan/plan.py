"""`Plan`: everything that all ranks must agree on, decided before the first of them computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import KvConfig, RunConfig
from vpp_ms.errors import PlanError, RequestError
from vpp_ms.plan.chunking import ChunkRule, chunk_rule
from vpp_ms.plan.cost import CostModel
from vpp_ms.plan.latency import Fit, LatencyModel
from vpp_ms.plan.memory import (
    ITEM_BYTES,
    RankMemory,
    activation_bytes,
    block_bytes,
    weight_bytes,
)
from vpp_ms.plan.partition import check_enough_layers, partition
from vpp_ms.plan.placement import Placement


@dataclass(frozen=True)
class StageSpec:
    """One virtual stage: layers [first_layer, end_layer); the first embeds, the last has the
    head."""

    index: int
    rank: int
    first_layer: int
    end_layer: int
    is_first: bool
    is_last: bool

    @property
    def num_layers(self) -> int:
        return self.end_layer - self.first_layer


@dataclass(frozen=True)
class WindowSpec:
    """Caps on what is in flight: a number, and predicted work in units of the dearest
    micro-batch (None: no cap in time)."""

    micro_batches: int
    time_chunks: float | None = None


@dataclass(frozen=True)
class Plan:
    """`hash` covers all fields but `notes` and `latency_source`.

    `max_tokens` bounds prompt plus output of one request; `limits` are the two it comes from.
    `latency_source` is "given", "profiled", "derived" (from FLOPs, fit for display only) or
    "none" (chunks need no latency). `notes` says in words what was decided for the user.
    """

    method: str
    placement: Placement
    stages: tuple[StageSpec, ...]
    chunking: ChunkRule
    order: str
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
) -> Plan:
    """The plan of one configuration; the same arguments give the same plan on every rank.

    `latency` is a profile's result; a Fit without a model leads to fixed chunks and a note.
    `prompt_lengths` (with `new_tokens` for each, default `input.max_new_tokens`) size the KV
    pool. Raises PlanError.
    """
    _check_parallel(config)
    placement = _placement(config)
    check_enough_layers(placement, spec.num_layers)
    limits = _limits(config, spec)
    longest = max(prompt_lengths, default=min(limit for _, limit in limits))
    stages = _stages(config, spec, placement, longest)
    chunking, source, notes = _chunking(config, spec, latency)
    item_bytes = ITEM_BYTES[config.model.compute_dtype]
    wanted = new_tokens or (config.input.max_new_tokens,) * len(prompt_lengths)
    totals = [p + n for p, n in zip(prompt_lengths, wanted, strict=True)] or [longest]
    num_blocks = _num_blocks(config.kv, spec, placement, stages, totals, item_bytes)
    window = WindowSpec(
        config.vpp.window.micro_batches or 4 * placement.num_ranks,
        config.vpp.window.time_chunks,
    )
    memory = tuple(
        _memory(rank, spec, stages, chunking, window, num_blocks, config.kv.block_size, item_bytes)
        for rank in range(placement.num_ranks)
    )
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
        model=hashlib.sha256(repr(spec).encode()).hexdigest()[:16],
        memory=memory,
        latency_source=source,
        notes=notes,
    )


def _check_parallel(config: RunConfig) -> None:
    parallel = config.parallel_config
    for key in ("model_parallel", "expert_parallel"):
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
    config: RunConfig, spec: ModelSpec, placement: Placement, longest: int
) -> tuple[StageSpec, ...]:
    """Layers balanced for a typical chunk: half the longest prompt before it, and the head's
    row paid once per prompt."""
    cost = CostModel.of(spec)
    chunk = min(config.chunking.chunk_tokens, longest)
    ranges = partition(
        placement,
        spec.num_layers,
        config.vpp.layer_split,
        layer_costs=cost.layer_costs(start=longest // 2, length=chunk),
        embedding_cost=cost.embedding.token_s * chunk,
        head_cost=cost.head.sample_s * chunk / longest,
    )
    last = placement.num_stages - 1
    return tuple(
        StageSpec(index, placement.rank_of(index), first, end, index == 0, index == last)
        for index, (first, end) in enumerate(ranges)
    )


def _chunking(
    config: RunConfig, spec: ModelSpec, latency: LatencyModel | Fit | None
) -> tuple[ChunkRule, str, tuple[str, ...]]:
    """Rule, where its latency comes from, notes."""
    preset = {"cpp": "fixed", "dcpp": "dynamic", "vpp": "fixed", "auto": "fixed"}
    method = config.chunking.method or preset[config.vpp.method]
    if method != "dynamic":
        return chunk_rule(config.chunking, method)[0], "none", ()
    if config.chunking.latency is not None:
        source, latency = "given", LatencyModel(*config.chunking.latency)
    elif latency is not None:
        source = "profiled"
    else:
        source, latency = "derived", LatencyModel(*CostModel.of(spec).latency_terms())
    rule, reason = chunk_rule(config.chunking, method, latency)
    if reason is not None:
        return rule, source, (f"fixed chunks instead of dynamic ones: {reason}",)
    return rule, source, ()


def _num_blocks(
    kv: KvConfig,
    spec: ModelSpec,
    placement: Placement,
    stages: Sequence[StageSpec],
    totals: Sequence[int],
    item_bytes: int,
) -> int:
    """The same on all ranks: given, or what the rank with most layers can hold, or all needed."""
    needed = sum(-(-total // kv.block_size) for total in totals)
    if kv.num_blocks is not None:
        return kv.num_blocks
    if kv.memory_bytes is None:
        return needed
    layers = [0] * placement.num_ranks
    for stage in stages:
        layers[stage.rank] += stage.num_layers
    one = block_bytes(spec, max(layers), kv.block_size, item_bytes)
    if kv.memory_bytes < one:
        raise PlanError(
            "kv.memory_bytes",
            kv.memory_bytes,
            allowed=f"at least one block of {kv.block_size} tokens, {one} bytes",
        )
    return min(kv.memory_bytes // one, needed)


def _memory(
    rank: int,
    spec: ModelSpec,
    stages: Sequence[StageSpec],
    chunking: ChunkRule,
    window: WindowSpec,
    num_blocks: int,
    block_size: int,
    item_bytes: int,
) -> RankMemory:
    mine = [stage for stage in stages if stage.rank == rank]
    layers = sum(stage.num_layers for stage in mine)
    has_head = any(stage.is_last for stage in mine)
    return RankMemory(
        rank,
        weight_bytes=weight_bytes(spec, mine, item_bytes),
        kv_bytes=num_blocks * block_bytes(spec, layers, block_size, item_bytes),
        activation_bytes=activation_bytes(
            spec, chunking.chunk_tokens, window.micro_batches, item_bytes, has_head
        ),
    )
