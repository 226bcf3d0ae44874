"""How many KV blocks the ranks can hold, and whether a plan fits into a device at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import KvConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.memory import (
    Footprint,
    RankMemory,
    activation_bytes,
    block_bytes,
    weight_bytes,
)
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.stages import StageSpec, WindowSpec

GIB = 2**30


@dataclass(frozen=True)
class Layout:
    """What the memory of a rank depends on, but for the number of KV blocks."""

    spec: ModelSpec
    placement: Placement
    stages: tuple[StageSpec, ...]
    chunking: ChunkRule
    window: WindowSpec
    block_size: int
    footprint: Footprint

    def num_blocks(self, kv: KvConfig, totals: Sequence[int]) -> int:
        """The same on all ranks: given, or what the tightest rank can hold, or all needed."""
        needed = sum(-(-total // self.block_size) for total in totals)
        if kv.num_blocks is not None:
            return kv.num_blocks
        ranks = range(self.placement.num_ranks)
        if kv.memory_bytes is not None:
            one = max(self._block_bytes(rank) for rank in ranks)
            if kv.memory_bytes < one:
                raise PlanError(
                    "kv.memory_bytes",
                    kv.memory_bytes,
                    allowed=f"at least one block of {self.block_size} tokens, {one} bytes",
                )
            needed = min(kv.memory_bytes // one, needed)
        if self.footprint.memory_bytes is None:
            return needed
        free = min(
            (self.footprint.memory_bytes - self.memory(rank, 0).total_bytes)
            // self._block_bytes(rank)
            for rank in ranks
        )
        return min(needed, max(free, -(-max(totals) // self.block_size)))

    def memory(self, rank: int, num_blocks: int) -> RankMemory:
        mine = [stage for stage in self.stages if stage.rank == rank]
        in_flight = -(-2 * self.window.micro_batches // self.placement.num_ranks)
        return RankMemory(
            rank,
            weight_bytes=weight_bytes(self.spec, mine, self.footprint),
            kv_bytes=num_blocks * self._block_bytes(rank),
            activation_bytes=activation_bytes(
                self.spec,
                self.chunking.chunk_tokens,
                in_flight,
                self.footprint,
                has_head=any(stage.is_last for stage in mine),
            ),
        )

    def _block_bytes(self, rank: int) -> int:
        layers = sum(stage.num_layers for stage in self.stages if stage.rank == rank)
        return block_bytes(self.spec, layers, self.block_size, self.footprint)


def check_memory(memory: Sequence[RankMemory], footprint: Footprint) -> None:
    """Raises PlanError when the fullest rank is over a device's memory."""
    limit = footprint.memory_bytes
    tightest = max(memory, key=lambda m: m.total_bytes)
    if limit is None or tightest.total_bytes <= limit:
        return
    weights, kv, rest = (
        f"{part / GIB:.1f}"
        for part in (tightest.weight_bytes, tightest.kv_bytes, tightest.activation_bytes)
    )
    raise PlanError(
        f"memory of rank {tightest.rank}",
        f"{tightest.total_bytes / GIB:.1f} GiB (weights {weights}, KV {kv}, activations {rest})",
        allowed=f"{limit / GIB:.1f} GiB on one device",
        hint="more ranks, shorter prompts, smaller chunks or a smaller window",
    )
