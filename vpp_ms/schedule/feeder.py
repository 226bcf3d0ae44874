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
    @property
    def num_turns(self) -> int: ...


class Pool(Protocol):
    """Where the KV of admitted requests lives; `kv.BlockPool` is one."""

    def allocate(self, request: int, num_tokens: int) -> tuple[int, ...] | None:
        """The request's blocks, grown to hold so many tokens; None, and nothing changed, while
        there are too few."""


@dataclass(frozen=True)
class Incoming:
    """A request as the feeder sees it. `total_tokens` are what its KV may grow to."""

    request: int
    prompt_tokens: int
    total_tokens: int
    cached_tokens: int = 0


class Feeder:
    """Requests in, micro-batches out, numbered in order of injection.

    Requests are admitted first come, first served. One whose first chunk fits may start before
    all it may need is free: its other chunks wait for blocks that older requests give back, its
    last one for all the rest, and no younger request is admitted meanwhile. So a long prompt's
    drain is the next one's fill even where the pool holds hardly more than one, and nobody waits
    for ever. What all admitted at one moment have to prefill is packed together. Decode tokens go
    before prompts, and both wait for the window. `pending` is what is planned and not yet injected.
    """

    def __init__(self, recipe: Recipe, costs: StageCosts, pool: Pool) -> None:
        self._recipe, self._costs, self._pool = recipe, costs, pool
        self._waiting: deque[tuple[Incoming, list[Segment]]] = deque()
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._short: Incoming | None = None  # admitted last, without all the blocks it may need
        self._tokens: list[Segment] = []
        self._prioritizer: Prioritizer | None = None
        self._window = Window()
        self._num_injected = 0
        self.pending: deque[MicroBatch] = deque()

    def arrive(self, incoming: Incoming) -> None:
        """A request asks for its prefill."""
        rule, cached = self._recipe.chunking, incoming.cached_tokens
        cut = cut_prompt(incoming.request, incoming.prompt_tokens, rule, cached)
        self._waiting.append((incoming, cut))

    def decode(self, request: int, position: int) -> None:
        """The request's newest token, the one at `position`, is to be run."""
        self._tokens.append(Segment(request, position, 1, sample=True))

    def finish(self, request: int) -> None:
        """The request is done with; whoever owns the pool gives its blocks back."""
        del self._blocks[request]
        if self._short is not None and self._short.request == request:
            self._short = None

    def admit(self) -> list[MicroBatch]:
        """Admit what the pool has room for; returns what is planned for it, now pending.

        To be called before `next` whenever a request has arrived or finished.
        """
        segments: list[Segment] = []
        while self._waiting and self._short is None:
            one, cut = self._waiting[0]
            if not self._hold(one.request, one.total_tokens):
                if cut[0].sample or not self._hold(one.request, cut[0].end):
                    break
                self._short = one
            self._waiting.popleft()
            segments += cut
        recipe = self._recipe
        planned = self._plan(pack(segments, recipe.chunking.chunk_tokens, recipe.num_turns))
        self.pending.extend(planned)
        return planned

    def next(self) -> MicroBatch | None:
        """The micro-batch to inject now; None when nothing is ready or the window is full."""
        tokens = self._tokens_of_a_turn()
        if tokens and self._fits(tokens):
            self._tokens = [token for token in self._tokens if token not in tokens]
            return self._inject(self._ahead_of_pending(tokens))
        if self.pending and self._fits(self.pending[0].segments) and self._has_blocks():
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

    def _tokens_of_a_turn(self) -> list[Segment]:
        """The oldest newest token, and those that may go with it."""
        turns = self._recipe.num_turns
        return [t for t in self._tokens if (t.request - self._tokens[0].request) % turns == 0]

    def _ahead_of_pending(self, segments: Sequence[Segment]) -> MicroBatch:
        assert self._prioritizer is not None, "a token before any prompt"
        if self.pending:
            return self._prioritizer.overtake(segments, self.pending[0])
        return self._prioritizer.add([segments], self._costs.table([segments]))[0]

    def _has_blocks(self) -> bool:
        """For the next in line; takes them if they have become free."""
        short = self._short
        for segment in self.pending[0].segments:
            if short is not None and segment.request == short.request:
                needed = short.total_tokens if segment.sample else segment.end
                if not self._hold(short.request, needed):
                    return False
                if segment.sample:
                    self._short = None
        return True

    def _hold(self, request: int, num_tokens: int) -> bool:
        blocks = self._pool.allocate(request, num_tokens)
        if blocks is not None:
            self._blocks[request] = blocks
        return blocks is not None

    def _with_blocks(self, segment: Segment) -> Segment:
        """Only the blocks that the segment may read or write."""
        used = -(-segment.end // self._recipe.block_size)
        return replace(segment, blocks=self._blocks[segment.request][:used])

    def _cost_s(self, segments: Sequence[Segment]) -> float:
        """Predicted work in the window's unit: one rank's share."""
        return sum(self._costs(segments)) / self._recipe.placement.num_ranks

    def _fits(self, segments: Sequence[Segment]) -> bool:
        return self._window.admits(self._cost_s(segments))

    def _inject(self, micro_batch: MicroBatch) -> MicroBatch:
        segments = tuple(map(self._with_blocks, micro_batch.segments))
        micro_batch = replace(micro_batch, index=self._num_injected, segments=segments)
        self._window.enter(micro_batch.index, self._cost_s(micro_batch.segments))
        self._num_injected += 1
        return micro_batch
