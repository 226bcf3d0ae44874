"""Prompts to segments to micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.schedule.actions import Segment
from vpp_ms.schedule.packing import cut_prompt, pack

RULE = ChunkRule("fixed", 16)


def test_only_the_last_segment_samples():
    assert cut_prompt(7, 33, RULE) == [
        Segment(7, 0, 16),
        Segment(7, 16, 16),
        Segment(7, 32, 1, sample=True),
    ]


def test_a_cached_prefix_is_not_cut_again():
    assert cut_prompt(0, 28, RULE, cached_tokens=20) == [Segment(0, 20, 8, sample=True)]


def test_short_prompts_share_a_micro_batch():
    segments = [segment for r in range(5) for segment in cut_prompt(r, 6, RULE)]
    assert [[s.request for s in group] for group in pack(segments, 16)] == [[0, 1], [2, 3], [4]]


def test_a_drain_is_the_next_fill_but_a_full_chunk_crosses_alone():
    segments = cut_prompt(0, 20, RULE) + cut_prompt(1, 5, RULE) + cut_prompt(2, 20, RULE)
    groups = [[(s.request, s.length) for s in group] for group in pack(segments, 16)]
    assert groups == [[(0, 16)], [(0, 4), (1, 5)], [(2, 16)], [(2, 4)]]


@given(
    lengths=st.lists(st.integers(1, 60), max_size=12),
    method=st.sampled_from(["fixed", "tail"]),
    chunk=st.integers(1, 20),
)
def test_packing_keeps_every_token_in_order_and_within_budget(lengths, method, chunk):
    rule = ChunkRule(method, chunk)
    segments = [s for r, length in enumerate(lengths) for s in cut_prompt(r, length, rule)]
    groups = pack(segments, chunk)
    assert [s for group in groups for s in group] == segments
    assert all(sum(s.length for s in group) <= chunk for group in groups)
    assert all(len(group) == 1 or all(s.sample for s in group) for group in groups)
