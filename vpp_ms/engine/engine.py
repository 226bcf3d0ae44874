"""`Engine`: rank 0's view of a run. Admit, feed, step, commit, until every request is done."""

from __future__ import annotations

from collections.abc import Sequence
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
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.feeder import Feeder, Incoming


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
        self._plan = plan
        self._executor, self._recorder, self._progress = executor, recorder, progress
        self._sampler, self._eos = sampler, eos_token_ids
        self._pool = BlockPool(plan.num_blocks, plan.block_size)
        self._requests: list[Request] = []
        self._feeder = Feeder(plan, costs, self._pool)
        self.injected: list[MicroBatch] = []

    def run(self, prompts: Sequence[Prompt]) -> list[Request]:
        """Serve all prompts; returns them in order, each finished."""
        self._requests = [Request(slot, prompt) for slot, prompt in enumerate(prompts)]
        for request in self._requests:
            self._arrive(request)
        while not all(request.finished for request in self._requests):
            self._feed()
            self._executor.step(timeout_s=1.0)
            self._progress.tick()
            while self._executor.outputs:
                self._take_output(*self._executor.outputs.popleft())
        self._drain()
        return self._requests

    @property
    def prefill(self) -> list[MicroBatch]:
        """What was injected of prompts, in order."""
        return [micro_batch for micro_batch in self.injected if not self._is_decode(micro_batch)]

    @property
    def free_blocks(self) -> int:
        return self._pool.num_free

    def _feed(self) -> None:
        """Inject all that the feeder gives for now."""
        planned = self._feeder.admit()
        if planned:
            self._progress.expect([micro_batch.segments for micro_batch in planned])
        while (micro_batch := self._feeder.next()) is not None:
            if not self._is_decode(micro_batch):
                for segment in micro_batch.segments:
                    self._requests[segment.request].chunks += (segment.length,)
            self.injected.append(micro_batch)
            self._executor.submit(micro_batch, self._token_ids(micro_batch))

    def _arrive(self, request: Request) -> None:
        total = request.total_tokens
        try:
            self._pool.check(request.slot, total)
        except RequestError as error:
            request.fail(str(error))
        else:
            self._feeder.arrive(Incoming(request.slot, request.prompt_tokens, total))

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
                parts.append(request.prompt.token_ids[segment.start : segment.end])
        return np.concatenate([np.asarray(part, np.int32) for part in parts])

    def _take_output(self, micro_batch: MicroBatch, logits: Any) -> None:
        self._feeder.leave(micro_batch)
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
            self._feeder.finish(request.slot)
        else:
            self._feeder.decode(request.slot, request.num_computed)

    def _drain(self) -> None:
        mark = MicroBatch(len(self.injected), (), (0.0,) * self._plan.placement.num_stages)
        self._executor.submit(mark, None)
        while not self._executor.outputs:
            self._executor.step()
        self._executor.outputs.clear()
