"""`EmulatedStage`: a stage whose computing is a wait of the predicted time; all else is real."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from vpp_ms.plan.cost import StageCosts
from vpp_ms.schedule.actions import MicroBatch


class EmulatedStage:
    """One virtual stage of a device that is not here.

    A run takes the stage's predicted time times `time_scale`, asleep. Hidden states are zeros
    [T, width]: `width` is the model's, or less where messages are scaled down. Logits name token
    0 as the likeliest.
    """

    def __init__(
        self,
        stage: int,
        is_last: bool,
        costs: StageCosts,
        *,
        time_scale: float,
        width: int,
        vocab_size: int,
    ) -> None:
        self.stage, self._is_last = stage, is_last
        self._costs, self._time_scale = costs, time_scale
        self._width = width
        self._logits_V = np.zeros(vocab_size, np.float32)
        self._logits_V[0] = 1.0

    def run(self, micro_batch: MicroBatch, payload: Any) -> np.ndarray | None:
        """Hidden states [T, width], or from the last stage logits [R, V], None when R = 0."""
        end_s = (
            time.perf_counter() + self._time_scale * self._costs(micro_batch.segments)[self.stage]
        )
        result = self._result(micro_batch)
        time.sleep(max(end_s - time.perf_counter(), 0.0))
        return result

    def example_payload(self, num_tokens: int) -> np.ndarray:
        return np.zeros((num_tokens, self._width), np.float32)

    def warm_up(self) -> None:
        """Nothing to compile."""

    def _result(self, micro_batch: MicroBatch) -> np.ndarray | None:
        if not self._is_last:
            return np.zeros((micro_batch.num_tokens, self._width), np.float32)
        rows = micro_batch.num_samples
        return np.tile(self._logits_V, (rows, 1)) if rows else None
