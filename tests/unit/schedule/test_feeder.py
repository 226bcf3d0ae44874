"""The feeder: every token once and in order, the window kept, tokens before prompts, no leak."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.plan import StageSpec, WindowSpec
from vpp_ms.schedule.feeder import Feeder, Incoming

BLOCK = 4


@dataclass(frozen=True)
class Recipe:
    placement: Placement
    chunking: ChunkRule
    window: WindowSpec
    order: str | float = "best"
    block_size: int = BLOCK
    num_turns: int = 1


class Pool:
    """Counts blocks, and hands out their numbers so that a block given twice shows."""

    def __init__(self, num_blocks):
        self.free, self.held = list(range(num_blocks)), {}

    def allocate(self, request, num_tokens):
        held = self.held.get(request, ())
        missing = -(-num_tokens // BLOCK) - len(held)
        if missing > len(self.free):
            return None
        self.held[request] = held + tuple(self.free.pop() for _ in range(missing))
        return self.held[request]

    def release(self, request):
        self.free += self.held.pop(request)


def make(placement=None, chunk=8, window=4, num_blocks=1000, order="best", num_turns=1):
    placement = placement or Placement("v", 2, 2)
    last = placement.num_stages - 1
    stages = [
        StageSpec(s, placement.rank_of(s), s, s + 1, s == 0, s == last) for s in range(last + 1)
    ]
    costs = CostModel({"x": PartCost(1.0, 0.1, 0.01)}, ("x",) * (last + 1)).for_stages(stages)
    recipe = Recipe(
        placement, ChunkRule("fixed", chunk), WindowSpec(window), order, num_turns=num_turns
    )
    pool = Pool(num_blocks)
    return Feeder(recipe, costs, pool), pool


def incoming(request, prompt, new_tokens=0):
    return Incoming(request, prompt, prompt + max(new_tokens - 1, 0))


def serve(feeder, pool, requests, new_tokens, window):
    """Everything comes back in FIFO order; returns what was injected."""
    left = {request.request: new_tokens for request in requests}
    computed = {request.request: request.cached_tokens for request in requests}
    in_flight, injected = [], []
    for request in requests:
        feeder.arrive(request)
    while True:
        feeder.admit()
        while (micro_batch := feeder.next()) is not None:
            assert micro_batch.index == len(injected)
            injected.append(micro_batch)
            in_flight.append(micro_batch)
            assert len(in_flight) <= window
            for segment in micro_batch.segments:
                assert segment.start == computed[segment.request], "out of order"
                computed[segment.request] += segment.length
                covered = len(segment.blocks) * BLOCK
                end = segment.start + segment.length
                assert end <= covered < end + BLOCK
                assert segment.blocks == pool.held[segment.request][: len(segment.blocks)]
        if not in_flight:
            return injected
        micro_batch = in_flight.pop(0)
        feeder.leave(micro_batch)
        for segment in micro_batch.segments:
            if segment.sample:
                left[segment.request] -= 1
                if left[segment.request] > 0:
                    feeder.decode(segment.request, computed[segment.request])
                else:
                    feeder.finish(segment.request)
                    pool.release(segment.request)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(16, 60),
    st.integers(1, 4),
    st.sampled_from(["best", "longest_path", -1.0]),
)
def test_every_token_once_and_in_order(prompts, chunk, window, num_blocks, new_tokens, order):
    feeder, pool = make(chunk=chunk, window=window, num_blocks=num_blocks, order=order)
    requests = [incoming(slot, prompt, new_tokens) for slot, prompt in enumerate(prompts)]
    injected = serve(feeder, pool, requests, new_tokens, window)
    tokens = sum(micro_batch.num_tokens for micro_batch in injected)
    assert tokens == sum(prompts) + len(prompts) * (new_tokens - 1)
    assert sum(micro_batch.num_samples for micro_batch in injected) == len(prompts) * new_tokens
    assert len(pool.free) == num_blocks


def requests_of(micro_batches):
    return [s.request for micro_batch in micro_batches for s in micro_batch.segments]


def test_requests_wait_for_room_first_come_first_served():
    feeder, pool = make(num_blocks=7)
    for slot, prompt in enumerate((24, 24, 4)):  # the third would fit at once
        feeder.arrive(incoming(slot, prompt))
    assert set(requests_of(feeder.admit())) == {0}
    assert feeder.admit() == []
    assert set(pool.held) == {0}


def test_a_long_prompt_starts_in_what_is_left_and_none_overtakes_it():
    feeder, pool = make(num_blocks=10, window=100)
    for slot, (prompt, new_tokens) in enumerate([(24, 0), (24, 9), (4, 0)]):
        feeder.arrive(incoming(slot, prompt, new_tokens))
    assert set(requests_of(feeder.admit())) == {0, 1}
    first = [feeder.next() for _ in range(5)]
    assert requests_of(first) == [0, 0, 0, 1, 1] and len(pool.held[1]) == 4
    assert feeder.next() is None, "its third chunk, the last, waits for all it may need"
    feeder.finish(0)
    pool.release(0)
    assert feeder.admit() == [], "while it waits, none is admitted"
    last = feeder.next()
    assert last.segments[0].sample and len(pool.held[1]) == 8
    assert requests_of(feeder.admit()) == [2]


def test_tokens_of_other_turns_go_by_themselves():
    feeder, _ = make(num_turns=2)
    for slot in range(4):
        feeder.arrive(incoming(slot, 2, 2))
    assert [requests_of([mb]) for mb in feeder.admit()] == [[0], [1], [2], [3]]
    while (micro_batch := feeder.next()) is not None:
        feeder.leave(micro_batch)
    for slot in (1, 0, 3, 2):
        feeder.decode(slot, 2)
    assert [requests_of([feeder.next()]) for _ in range(2)] == [[1, 3], [0, 2]]
    assert feeder.next() is None


def test_tokens_go_before_prompts_and_as_urgently_as_what_they_overtake():
    feeder, _ = make(window=2, order="longest_path")
    feeder.arrive(incoming(0, 8, 4))
    feeder.arrive(incoming(1, 32))
    feeder.admit()
    first, second = feeder.next(), feeder.next()
    assert feeder.next() is None, "the window is full"
    feeder.leave(first)
    feeder.decode(0, 8)
    overtaken = feeder.pending[0]
    token = feeder.next()
    assert (token.index, token.segments[0].start, token.num_tokens) == (2, 8, 1)
    assert token.priority == overtaken.priority
    feeder.leave(second)
    (segment,) = feeder.next().segments
    assert replace(segment, blocks=()) == overtaken.segments[0]


def test_tokens_of_all_requests_share_a_micro_batch():
    feeder, _ = make()
    for slot in range(3):
        feeder.arrive(incoming(slot, 5, 2))
    feeder.admit()
    while (micro_batch := feeder.next()) is not None:
        feeder.leave(micro_batch)
    for slot in range(3):
        feeder.decode(slot, 5)
    assert [segment.request for segment in feeder.next().segments] == [0, 1, 2]
    assert feeder.next() is None


def test_a_cached_prefix_is_not_cut_again():
    feeder, _ = make(chunk=8)
    feeder.arrive(Incoming(0, 30, 30, cached_tokens=13))
    assert [(s.start, s.length) for mb in feeder.admit() for s in mb.segments] == [
        (13, 8),
        (21, 8),
        (29, 1),
    ]


def test_a_token_before_any_prompt_is_a_bug():
    feeder, _ = make()
    feeder.decode(0, 5)
    with pytest.raises(AssertionError, match="before any prompt"):
        feeder.next()
