"""The work list, without MindSpore: each query meets each key it may see exactly once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.model.worklist import TileLimits, WorkList, WorkPlanner
from vpp_ms.schedule.actions import Segment

NUM_BLOCKS = 40
SEGMENT = st.tuples(st.integers(0, 30), st.integers(1, 25))
LIMITS = st.builds(
    TileLimits,
    rows=st.integers(1, 12),
    columns=st.integers(1, 40),
    scores=st.integers(1, 400),
    solo_rows=st.integers(1, 6),
)


def make_segments(spans: list[tuple[int, int]], size: int, seed: int) -> list[Segment]:
    """Segments with disjoint, shuffled block tables; the last token of every other is sampled."""
    free = iter(np.random.default_rng(seed).permutation(1000).tolist())
    segments = []
    for request, (start, length) in enumerate(spans):
        spare = request % 3  # a table may hold more blocks than the segment needs
        blocks = tuple(next(free) for _ in range(-(-(start + length) // size) + spare))
        segments.append(Segment(request, start, length, request % 2 == 0, blocks))
    return segments


def seen_keys(work: WorkList, window: int | None, size: int) -> dict[int, list[int]]:
    """token -> slots of the keys it attends to, with repetitions.

    Read, even if masked, are only slots up to the end of the segment's last block, and zeros.
    """
    seen: dict[int, list[int]] = {}
    null_slots = {1000 * size + i for i in range(size)}
    allowed_reads = [
        null_slots
        | {b * size + i for b in s.blocks[: -(-(s.start + s.length) // size)] for i in range(size)}
        for s in work.segments
        for _ in range(s.length)
    ]
    for group in work.groups:
        for p, r in zip(*np.nonzero(group.is_real), strict=True):
            position, slots = group.positions_PR[p, r], []
            for tile in group.kv_tiles:
                columns = tile.positions_PC[p]
                visible = columns <= position
                if window is not None:
                    visible &= columns > position - window
                assert tile.masked or visible.all()
                slots += tile.slots_PC[p][visible].tolist()
                read = set(tile.slots_PC[p].tolist())
                assert read <= allowed_reads[int(group.tokens_PR[p, r])]
            token = int(group.tokens_PR[p, r])
            assert token not in seen, "a token is in one tile only"
            seen[token] = slots
    return seen


@given(
    st.lists(SEGMENT, min_size=1, max_size=5),
    st.integers(1, 7),
    LIMITS,
    st.none() | st.integers(1, 20),
    st.integers(0, 99),
)
def test_queries_meet_their_keys_once(
    spans: list, size: int, limits: TileLimits, window: int | None, seed: int
) -> None:
    segments = make_segments(spans, size, seed)
    planner = WorkPlanner(
        num_heads=4, block_size=size, null_block=1000, window=window, limits=limits
    )
    work = planner.plan(segments)
    seen, token = seen_keys(work, window, size), 0
    for segment in segments:
        slots = [b * size + i for b in segment.blocks for i in range(size)]
        for position in range(segment.start, segment.start + segment.length):
            oldest = 0 if window is None else max(0, position + 1 - window)
            assert sorted(seen[token]) == sorted(slots[oldest : position + 1])
            assert work.positions_T[token] == position
            assert work.write_slots[token] == slots[position]
            token += 1
    assert len(seen) == token == len(work.write_slots) - work.num_zeroed
    assert [int(t) for t in work.samples_R] == [
        sum(s.length for s in segments[: i + 1]) - 1 for i, s in enumerate(segments) if s.sample
    ]


@given(st.lists(SEGMENT, min_size=1, max_size=5), st.integers(1, 7), st.integers(0, 99))
def test_only_own_slots_are_written(spans: list, size: int, seed: int) -> None:
    """Zeroed are slots of the null block, or behind the segment's end in a block it has entered."""
    segments = make_segments(spans, size, seed)
    work = WorkPlanner(num_heads=4, block_size=size, null_block=1000).plan(segments)
    zeroed = set(work.write_slots[-work.num_zeroed :].tolist())
    assert work.num_zeroed >= 1
    allowed, demanded = {1000 * size}, set()
    for s in segments:
        slots = [b * size + i for b in s.blocks for i in range(size)]
        allowed |= set(slots[s.start + s.length :])
        last_block = (s.start + s.length - 1) // size
        if last_block * size >= s.start:
            demanded |= set(slots[s.start + s.length : (last_block + 1) * size])
    assert demanded <= zeroed <= allowed


def test_a_decode_token_costs_one_row() -> None:
    planner = WorkPlanner(num_heads=8, block_size=16, null_block=999)
    spans = [(1000, 1), (900, 1), (5000, 1), (0, 300)]
    groups = planner.plan(make_segments(spans, 16, 0)).groups
    assert sorted(g.tokens_PR.shape for g in groups) == [(1, 1), (1, 300), (2, 1)]


def test_score_memory_does_not_grow_with_the_prefix() -> None:
    limits = TileLimits()
    planner = WorkPlanner(num_heads=8, block_size=64, null_block=9999, limits=limits)
    for start in (0, 1000, 30000):
        work = planner.plan([Segment(0, start, 512, blocks=tuple(range(500)))])
        (group,) = work.groups
        sizes = [8 * 512 * tile.positions_PC.size for tile in group.kv_tiles]
        assert max(sizes) <= limits.scores
        assert sum(sizes) <= 8 * 512 * (start + 512 + 2 * 64)
        unmasked = [not tile.masked for tile in group.kv_tiles]
        assert sum(unmasked) >= len(unmasked) - 2
