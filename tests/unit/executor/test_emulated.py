"""An emulated stage takes the predicted time and sends what a real one would."""

from __future__ import annotations

import time

import numpy as np

from vpp_ms.executor.emulated import EmulatedStage
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.plan import StageSpec
from vpp_ms.schedule.actions import MicroBatch, Segment

STAGES = [StageSpec(0, 0, 0, 1, True, False), StageSpec(1, 1, 1, 3, False, True)]
COSTS = CostModel({"moe": PartCost(token_s=1.0, pair_s=0.01)}, ("moe",) * 3).for_stages(STAGES)


def stage(index: int, time_scale: float = 1e-3) -> EmulatedStage:
    return EmulatedStage(index, index == 1, COSTS, time_scale=time_scale, width=8, vocab_size=11)


def test_it_takes_the_predicted_time() -> None:
    micro_batch = MicroBatch(0, (Segment(0, 100, 10),), (0.0, 0.0))
    first_s, second_s = COSTS(micro_batch.segments)
    assert second_s == 2 * first_s == 2 * (10 * 1.0 + 10 * (2 * 100 + 10) / 2 * 0.01)
    for index, wanted_s in ((0, first_s), (1, second_s)):
        start_s = time.perf_counter()
        stage(index).run(micro_batch, None)
        taken_s = time.perf_counter() - start_s
        assert 1e-3 * wanted_s <= taken_s < 1e-3 * wanted_s + 0.05


def test_messages_have_the_shape_of_real_ones() -> None:
    sampled = MicroBatch(0, (Segment(0, 0, 5), Segment(1, 0, 2, sample=True)), (0.0, 0.0))
    silent = MicroBatch(1, (Segment(0, 5, 3),), (0.0, 0.0))
    hidden = stage(0, 1e-6).run(sampled, None)
    assert hidden is not None and hidden.shape == (7, 8) and hidden.dtype == np.float32
    logits = stage(1, 1e-6).run(sampled, hidden)
    assert logits is not None and logits.shape == (1, 11) and int(logits.argmax()) == 0
    assert stage(1, 1e-6).run(silent, hidden) is None
