"""`Feeder`: who is injected next. Rank 0's engine and the simulator ask the very same object."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.cost import StageCosts
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.plan import WindowSpec
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.schedule.packing import cut_prompt, pack
from vpp_ms.schedule.policy import Prioritizer
from vpp_ms.schedule.window import Window


class Recipe(Protocol):
    """What of a plan decides who is injected next. A `Plan` is one."""

    @property
    def placement(self) -> Placement: ...
    @property
    def chunking(self) -> ChunkRule: ...
    @property
    def order(self) -> str | float: ...
    @property
    def window(self) -> WindowSpec: ...
    @property
    def block_size(self) -> int: ...


class Pool(Protocol):
    """Where the KV of admitted requests lives; `kv.BlockPool` is one."""

    def allocate(self, request: int, num_tokens: int) -> tuple[int, ...] | None:
        """Blocks for all tokens that the request may need, or None while there are too few."""


@dataclass(frozen=True)
class Incoming:
    """A request as the feeder sees it. `total_tokens` are what its KV may grow to."""

    request: int
    prompt_tokens: int
    total_tokens: int
    cached_tokens: int = 0


class Feeder:
    """Requests in, micro-batches out, numbered in order of injection.

    Requests are admitted first come, first served, as the pool has room for all they may need.
    What all admitted at one moment have to prefill is packed together. Decode tokens go before
    prompts, and both wait for the window. `pending` is what is planned and not yet injected.
    """

    def __init__(self, recipe: Recipe, costs: StageCosts, pool: Pool) -> None:
        self._recipe, self._costs, self._pool = recipe, costs, pool
        self._waiting: deque[Incoming] = deque()
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._tokens: list[Segment] = []
        self._prioritizer: Prioritizer | None = None
        self._window = Window()
        self._num_injected = 0
        self.pending: deque[MicroBatch] = deque()

    def arrive(self, incoming: Incoming) -> None:
        """A request asks for its prefill."""
        self._waiting.append(incoming)

    def decode(self, request: int, position: int) -> None:
        """The request's newest token, the one at `position`, is to be run."""
        self._tokens.append(self._with_blocks(Segment(request, position, 1, sample=True)))

    def finish(self, request: int) -> None:
        """The request is done with; whoever owns the pool gives its blocks back."""
        del self._blocks[request]

    def admit(self) -> list[MicroBatch]:
        """Admit what the pool has room for; returns what is planned for it, now pending.

        To be called before `next` whenever a request has arrived or finished.
        """
        segments: list[Segment] = []
        while self._waiting:
            one = self._waiting[0]
            blocks = self._pool.allocate(one.request, one.total_tokens)
            if blocks is None:
                break
            self._waiting.popleft()
            self._blocks[one.request] = blocks
            cut = cut_prompt(
                one.request, one.prompt_tokens, self._recipe.chunking, one.cached_tokens
            )
            segments += [self._with_blocks(segment) for segment in cut]
        planned = self._plan(pack(segments, self._recipe.chunking.chunk_tokens))
        self.pending.extend(planned)
        return planned

    def next(self) -> MicroBatch | None:
        """The micro-batch to inject now; None when nothing is ready or the window is full."""
        if self._tokens and self._fits(self._tokens):
            tokens, self._tokens = self._tokens, []
            return self._inject(self._ahead_of_pending(tokens))
        if self.pending and self._fits(self.pending[0].segments):
            return self._inject(self.pending.popleft())
        return None

    def leave(self, micro_batch: MicroBatch) -> None:
        """The micro-batch has come back from the last stage."""
        self._window.leave(micro_batch.index)

    def _plan(self, groups: Sequence[tuple[Segment, ...]]) -> list[MicroBatch]:
        if not groups:
            return []
        costs_nS = self._costs.table(groups)
        if self._prioritizer is None:
            recipe = self._recipe
            dearest_s = float(costs_nS.sum(axis=1).max()) / recipe.placement.num_ranks
            spec = recipe.window
            self._window = Window.of(spec.micro_batches, spec.time_chunks, dearest_s)
            self._prioritizer = Prioritizer(recipe.placement, recipe.order, self._window)
        return self._prioritizer.add(groups, costs_nS)

    def _ahead_of_pending(self, segments: Sequence[Segment]) -> MicroBatch:
        assert self._prioritizer is not None, "a token before any prompt"
        if self.pending:
            return self._prioritizer.overtake(segments, self.pending[0])
        return self._prioritizer.add([segments], self._costs.table([segments]))[0]

    def _with_blocks(self, segment: Segment) -> Segment:
        """Only the blocks that the segment may read or write."""
        used = -(-(segment.start + segment.length) // self._recipe.block_size)
        return replace(segment, blocks=self._blocks[segment.request][:used])

    def _cost_s(self, segments: Sequence[Segment]) -> float:
        """Predicted work in the window's unit: one rank's share."""
        return sum(self._costs(segments)) / self._recipe.placement.num_ranks

    def _fits(self, segments: Sequence[Segment]) -> bool:
        return self._window.admits(self._cost_s(segments))

    def _inject(self, micro_batch: MicroBatch) -> MicroBatch:
        micro_batch = replace(micro_batch, index=self._num_injected)
        self._window.enter(micro_batch.index, self._cost_s(micro_batch.segments))
        self._num_injected += 1
        return micro_batch
