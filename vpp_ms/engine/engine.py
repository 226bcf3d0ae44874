"""`Engine`: rank 0's view of a run. Admit, feed, step, commit, until every request is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vpp_ms.engine.progress import Progress
from vpp_ms.engine.prompts import Prompt
from vpp_ms.engine.request import Request
from vpp_ms.engine.sampler import Sampler
from vpp_ms.errors import RequestError
from vpp_ms.executor.rank import Executor
from vpp_ms.executor.recorder import Recorder
from vpp_ms.kv.blocks import BlockPool
from vpp_ms.plan.cost import StageCosts
from vpp_ms.plan.plan import Plan
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.schedule.packing import cut_prompt, pack
from vpp_ms.schedule.policy import Prioritizer
from vpp_ms.schedule.window import Window


class Engine:
    """Drives the executor of rank 0 through one batch of prompts.

    A request that cannot be served (too long for the KV pool, logits not finite) fails alone,
    with `finish_reason` "error"; the others go on.
    """

    def __init__(
        self,
        plan: Plan,
        costs: StageCosts,
        executor: Executor,
        recorder: Recorder,
        sampler: Sampler,
        eos_token_ids: frozenset[int],
        progress: Progress,
    ) -> None:
        self._plan, self._costs = plan, costs
        self._executor, self._recorder, self._progress = executor, recorder, progress
        self._sampler, self._eos = sampler, eos_token_ids
        self._pool = BlockPool(plan.num_blocks, plan.block_size)
        self._requests: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._pending: deque[MicroBatch] = deque()
        self._decodable: list[Request] = []
        self._window = Window()
        self._prioritizer = Prioritizer(plan.placement, plan.order)
        self._num_injected = 0
        self.prefill: list[MicroBatch] = []

    def run(self, prompts: Sequence[Prompt]) -> list[Request]:
        """Serve all prompts; returns them in order, each finished."""
        self._requests = [Request(slot, prompt) for slot, prompt in enumerate(prompts)]
        self._waiting.extend(self._requests)
        while not all(request.finished for request in self._requests):
            self._feed()
            self._executor.step(timeout_s=1.0)
            self._progress.tick()
            while self._executor.outputs:
                self._take_output(*self._executor.outputs.popleft())
        self._drain()
        return self._requests

    @property
    def free_blocks(self) -> int:
        return self._pool.num_free

    def _feed(self) -> None:
        """Inject what the window admits: decode tokens first, then prompts in order."""
        if self._waiting:
            self._admit()
        if self._decodable:
            segments = self._decode_segments()
            if self._window.admits(self._cost_s(segments)):
                self._inject(self._decode_micro_batch(segments))
                self._decodable = []
        while self._pending and self._window.admits(self._cost_s(self._pending[0].segments)):
            self.prefill.append(self._inject(self._pending.popleft()))

    def _admit(self) -> None:
        """Give KV blocks to waiting requests, first come first served, and plan their chunks."""
        segments: list[Segment] = []
        while self._waiting:
            request = self._waiting[0]
            try:
                blocks = self._pool.allocate(request.slot, request.total_tokens)
            except RequestError as error:
                self._waiting.popleft().fail(str(error))
                continue
            if blocks is None:
                break
            self._waiting.popleft()
            request.blocks = blocks
            cut = cut_prompt(request.slot, request.prompt_tokens, self._plan.chunking)
            request.chunks = tuple(segment.length for segment in cut)
            segments += [self._with_blocks(segment, blocks) for segment in cut]
        if segments:
            groups = pack(segments, self._plan.chunking.chunk_tokens)
            self._pending.extend(self._prioritize(groups))
            self._progress.expect(groups)

    def _prioritize(self, groups: Sequence[tuple[Segment, ...]]) -> list[MicroBatch]:
        costs_nS = self._costs.table(groups)
        if not self._num_injected:
            dearest_s = float(costs_nS.sum(axis=1).max()) / self._plan.placement.num_ranks
            spec = self._plan.window
            self._window = Window.of(spec.micro_batches, spec.time_chunks, dearest_s)
            self._prioritizer = Prioritizer(self._plan.placement, self._plan.order, self._window)
        return self._prioritizer.add(groups, costs_nS)

    def _with_blocks(self, segment: Segment, blocks: tuple[int, ...]) -> Segment:
        """Only the blocks that the segment may read or write."""
        used = -(-(segment.start + segment.length) // self._plan.block_size)
        return replace(segment, blocks=blocks[:used])

    def _decode_segments(self) -> tuple[Segment, ...]:
        """The newest token of every request that has one."""
        return tuple(
            self._with_blocks(Segment(r.slot, r.num_computed, 1, sample=True), r.blocks)
            for r in self._decodable
        )

    def _decode_micro_batch(self, segments: tuple[Segment, ...]) -> MicroBatch:
        """Ahead of what is pending."""
        if self._pending:
            return self._prioritizer.overtake(segments, self._pending[0])
        return self._prioritizer.add([segments], self._costs.table([segments]))[0]

    def _cost_s(self, segments: Sequence[Segment]) -> float:
        """Predicted work in the window's unit: one rank's share."""
        return sum(self._costs(segments)) / self._plan.placement.num_ranks

    def _inject(self, micro_batch: MicroBatch) -> MicroBatch:
        micro_batch = replace(micro_batch, index=self._num_injected)
        self._window.enter(micro_batch.index, self._cost_s(micro_batch.segments))
        self._num_injected += 1
        self._executor.submit(micro_batch, self._token_ids(micro_batch))
        return micro_batch

    def _is_decode(self, micro_batch: MicroBatch) -> bool:
        segment = micro_batch.segments[0]
        return segment.start >= self._requests[segment.request].prompt_tokens

    def _token_ids(self, micro_batch: MicroBatch) -> np.ndarray:
        parts: list[Sequence[int]] = []
        for segment in micro_batch.segments:
            request = self._requests[segment.request]
            if segment.start >= request.prompt_tokens:
                parts.append(request.output_token_ids[-1:])
            else:
                parts.append(
                    request.prompt.token_ids[segment.start : segment.start + segment.length]
                )
        return np.concatenate([np.asarray(part, np.int32) for part in parts])

    def _take_output(self, micro_batch: MicroBatch, logits: Any) -> None:
        self._window.leave(micro_batch.index)
        sampled = [segment for segment in micro_batch.segments if segment.sample]
        logits_RV = np.asarray(logits) if sampled else ()
        for segment, logits_V in zip(sampled, logits_RV, strict=True):
            self._commit(self._requests[segment.request], logits_V)
        if not self._is_decode(micro_batch):
            self._progress.prefilled(micro_batch.num_tokens)

    def _commit(self, request: Request, logits_V: np.ndarray) -> None:
        now_s = self._recorder.elapsed_s
        if request.ttft_s is None:
            request.prompt_logits_V = logits_V
        if request.prompt.max_new_tokens == 0:
            request.ttft_s, request.finish_reason = now_s, "length"
        else:
            try:
                position = len(request.output_token_ids)
                token = self._sampler.sample(logits_V, request.prompt.id, position)
                request.commit(token, self._eos, now_s)
                self._progress.sampled(request.prompt.id, token)
            except RequestError as error:
                request.fail(str(error))
        if request.finished:
            self._pool.free(request.slot)
        else:
            self._decodable.append(request)

    def _drain(self) -> None:
        mark = MicroBatch(self._num_injected, (), (0.0,) * self._plan.placement.num_stages)
        self._executor.submit(mark, None)
        while not self._executor.outputs:
            self._executor.step()
        self._executor.outputs.clear()
