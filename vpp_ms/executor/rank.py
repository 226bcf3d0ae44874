"""`Executor`: one rank's loop. Receive, compute the most urgent ready action, send.

It decides nothing itself: `RankQueue` says what is ready and what comes first, the placement
says where a result goes, and the micro-batch carries everything else. A micro-batch without
segments is the drain mark: it crosses all stages in FIFO order and ends the loop behind it.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from vpp_ms.executor.compute import StageCompute
from vpp_ms.executor.descriptor import decode, encode
from vpp_ms.executor.recorder import Recorder
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import Action, MicroBatch
from vpp_ms.schedule.queue import RankQueue
from vpp_ms.transport.channel import Channel, Delivery, Route


class Executor:
    """Runs the stages that `placement` gives to this rank.

    `outputs` (rank 0 only) fills with (micro-batch, logits [R, V] or None) in FIFO order.
    """

    def __init__(
        self,
        placement: Placement,
        stages: Mapping[int, StageCompute],
        channel: Channel,
        recorder: Recorder,
    ) -> None:
        assert set(stages) == set(placement.stages_of(channel.rank))
        self._placement, self._stages, self._channel = placement, stages, channel
        self._recorder = recorder
        self._queue = RankQueue(stages)
        self._payloads: dict[Action, Any] = {}
        self._arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._links = {link.name: link for link in placement.links()}
        self._last_stage = max(stages)
        self.drained = False
        self.outputs: deque[tuple[MicroBatch, Any]] = deque()
        channel.open(
            [Route(link.name, link.source, link.target) for link in placement.links()],
            self._arrived.put,
        )

    def submit(self, micro_batch: MicroBatch, token_ids: Any) -> None:
        """Rank 0: let the first stage have `token_ids` int32 [T]."""
        self._ready(0, micro_batch, token_ids)

    def step(self, timeout_s: float | None = None) -> bool:
        """Run one action; with none ready, wait for a message for up to `timeout_s`.

        Outputs that have arrived end the step before anything is chosen: what they make room
        for in the window is to be among the choices. Returns False when nothing came in time.
        """
        while not self._arrived.empty():
            self._take(self._arrived.get_nowait())
        if self.outputs:
            return True
        ready = self._queue.pop()
        if ready is not None:
            self._run(*ready)
            return True
        start_s = time.perf_counter()
        try:
            delivery = self._arrived.get(timeout=timeout_s)
        except queue.Empty:
            return False
        finally:
            self._recorder.wait(start_s, time.perf_counter())
        self._take(delivery)
        return True

    def _run(self, action: Action, micro_batch: MicroBatch) -> None:
        payload = self._payloads.pop(action)
        result = None
        if micro_batch.segments:
            start_s = time.perf_counter()
            result = self._stages[action.stage].run(micro_batch, payload)
            self._recorder.compute(*action, start_s, time.perf_counter())
        elif action.stage == self._last_stage:
            self.drained = True
        self._hand_over(action.stage, micro_batch, result)

    def _hand_over(self, stage: int, micro_batch: MicroBatch, result: Any) -> None:
        link = self._placement.link_behind(stage)
        if link is None:
            self._ready(stage + 1, micro_batch, result)
            return
        meter = self._channel.meters[link.name]
        start_s, bytes_before = time.perf_counter(), meter.num_bytes
        self._channel.send(link.name, encode(micro_batch), result)
        self._recorder.send(
            stage,
            micro_batch.index,
            start_s,
            time.perf_counter(),
            meter.num_bytes - bytes_before,
            link.target,
        )

    def _take(self, delivery: Delivery) -> None:
        link = self._links[delivery.route]
        micro_batch = decode(delivery.header)
        self._recorder.recv(
            link.source_stage,
            micro_batch.index,
            delivery.posted_s,
            delivery.done_s,
            delivery.num_bytes,
            link.source,
        )
        self._ready(link.source_stage + 1, micro_batch, delivery.payload)

    def _ready(self, stage: int, micro_batch: MicroBatch, payload: Any) -> None:
        if stage == self._placement.num_stages:
            self.outputs.append((micro_batch, payload))
            return
        self._payloads[Action(stage, micro_batch.index)] = payload
        self._queue.put(stage, micro_batch)
