"""The two objects that ranks and simulator share: ready actions, and what may be in flight."""

from __future__ import annotations

import math

import pytest

from vpp_ms.schedule.actions import Action, MicroBatch
from vpp_ms.schedule.queue import RankQueue
from vpp_ms.schedule.window import Window


def batch(index, *priority):
    return MicroBatch(index, (), priority)


def test_the_greatest_priority_goes_first_then_the_oldest_then_the_later_stage():
    queue = RankQueue([0, 1])
    queue.put(0, batch(0, 5.0, 5.0))
    queue.put(0, batch(1, 9.0, 0.0))
    queue.put(1, batch(0, 5.0, 5.0))
    assert len(queue) == 3
    popped = [queue.pop() for _ in range(3)]
    assert [action for action, _ in popped] == [Action(1, 0), Action(0, 0), Action(0, 1)]
    assert queue.pop() is None


def test_a_younger_micro_batch_never_overtakes_on_its_stage():
    queue = RankQueue([0])
    queue.put(0, batch(0, 0.0))
    queue.put(0, batch(1, 100.0))
    assert queue.pop()[0] == Action(0, 0)


def test_a_gap_in_the_order_is_a_bug_and_caught():
    queue = RankQueue([0])
    queue.put(0, batch(0, 0.0))
    with pytest.raises(AssertionError, match="FIFO"):
        queue.put(0, batch(2, 0.0))


def test_the_window_counts_number_and_time():
    window = Window(max_time_s=10.0, max_micro_batches=3)
    window.enter(0, 6.0)
    assert window.admits(4.0)
    assert not window.admits(4.1)
    window.enter(1, 2.0)
    window.enter(2, 1.0)
    assert not window.admits(0.1)
    window.leave(0)
    assert window.admits(7.0)
    assert len(window) == 2


def test_one_always_fits():
    assert Window(max_time_s=1.0, max_micro_batches=1).admits(1e9)


def test_sums_of_costs_do_not_drift():
    window = Window(max_time_s=0.3, max_micro_batches=8)
    for index in range(1000):
        window.enter(3 * index, 0.1)
        window.enter(3 * index + 1, 0.1)
        assert window.admits(0.1)
        window.enter(3 * index + 2, 0.1)
        assert not window.admits(0.01)
        for offset in range(3):
            window.leave(3 * index + offset)
    assert len(window) == 0


def test_a_plans_window():
    window = Window.of(4, time_chunks=2.5, dearest_s=2.0)
    window.enter(0, 4.0)
    assert window.admits(1.0)
    assert not window.admits(1.1)
    endless = Window.of(4)
    endless.enter(0, math.inf)
    assert endless.fresh().admits(1.0)
    assert endless.admits(1.0)
