"""The profile that all ranks agree on."""

from __future__ import annotations

import time

from toy import ToyStage

from vpp_ms.engine.profile import Sample, dearest, encode_times, samples, time_stages
from vpp_ms.plan.latency import LatencyModel, fit_latency
from vpp_ms.schedule.actions import MicroBatch


class TimedStage(ToyStage):
    """Takes the time that `model` says, in ms."""

    model = LatencyModel(a=5e-5, b=0.02, c=0.5)

    def run(self, micro_batch: MicroBatch, payload: object) -> None:
        (segment,) = micro_batch.segments
        assert len(segment.blocks) * self._block_size >= segment.start + segment.length
        time.sleep(1e-3 * self.model.time_of(segment.start, segment.length))


def test_samples_stay_inside_the_pool() -> None:
    for capacity in (5, 64, 100, 1000):
        for sample in samples(64, capacity):
            assert sample.length >= 1 and sample.start + sample.length <= capacity
    assert {sample.start for sample in samples(64, 1000)} > {0}


def test_the_fit_finds_what_the_stages_cost() -> None:
    stages = [TimedStage(0, 2, 100, 4), TimedStage(1, 2, 100, 4)]
    chunks = samples(64, 400)
    times_ms = time_stages(stages, chunks, 4, 2)
    fit = fit_latency([c.length for c in chunks], times_ms, 64, [c.start for c in chunks])
    assert fit.model is not None, fit.reason
    for start in (0, 200):
        wanted = 2 * TimedStage.model.time_of(start, 64)
        assert abs(fit.model.time_of(start, 64) - wanted) < 0.25 * wanted


def test_the_slowest_rank_sets_each_time() -> None:
    parts = [encode_times([1.0, 5.0]), encode_times([2.0, 3.0])]
    assert dearest(parts) == [2.0, 5.0]


def test_one_rank_that_cannot_be_profiled_speaks_for_all() -> None:
    assert dearest([encode_times([1.0]), encode_times(None)]) is None


def test_a_pool_of_one_chunk_has_no_depth() -> None:
    assert all(sample.start == 0 for sample in samples(64, 64))
    assert Sample(0, 64) in samples(64, 64)
