"""A rank's step: what has come back is handed out before anything else is chosen."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from toy import ToyStage

from vpp_ms.executor.rank import Executor
from vpp_ms.executor.recorder import Recorder
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.trace.events import COMPUTE
from vpp_ms.transport.inproc import InProcessNetwork


def test_an_output_ends_the_step_before_the_next_action_is_chosen():
    """It may open the window for something more urgent; and nothing else may ever arrive."""
    placement, net = Placement("plain", 2), InProcessNetwork(2)
    recorders = [Recorder(0), Recorder(1)]

    def join(rank: int) -> Executor:  # collective: all ranks open their channels at once
        stages = {rank: ToyStage(rank, 2, 8, 4)}
        return Executor(placement, stages, net.channel(rank), recorders[rank])

    with ThreadPoolExecutor() as pool:
        ranks = list(pool.map(join, (0, 1)))

    def submit(index: int) -> None:
        segment = Segment(index, 0, 4, sample=True, blocks=(index,))
        ranks[0].submit(MicroBatch(index, (segment,), (0.0, 0.0)), np.arange(4, dtype=np.int32))

    def computed() -> int:
        return sum(event.kind == COMPUTE for event in recorders[0].events)

    submit(0)
    assert ranks[0].step(timeout_s=5.0) and computed() == 1
    while not recorders[1].events or recorders[1].events[-1].kind != "send":
        ranks[1].step(timeout_s=5.0)
    submit(1)
    time.sleep(0.2)  # the output of micro-batch 0 lands
    assert ranks[0].step(timeout_s=5.0)
    assert len(ranks[0].outputs) == 1 and computed() == 1
    ranks[0].outputs.clear()
    assert ranks[0].step(timeout_s=5.0) and computed() == 2
