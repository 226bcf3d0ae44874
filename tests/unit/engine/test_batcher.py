"""Cutting and packing: every token once, in order, and never a hidden change of partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.engine.batcher import cut_prompt, decode_segment, pack
from vpp_ms.plan.chunking import ChunkRule

BLOCK = 4
lengths = st.lists(st.integers(1, 70), min_size=1, max_size=8)


def blocks_for(num_tokens: int) -> tuple[int, ...]:
    return tuple(range(100, 100 + -(-num_tokens // BLOCK)))


def cut_all(prompt_lengths: list[int], chunk: int) -> list:
    rule = ChunkRule("fixed", chunk)
    return [
        segment
        for slot, length in enumerate(prompt_lengths)
        for segment in cut_prompt(slot, length, blocks_for(length), BLOCK, rule)
    ]


@given(lengths, st.integers(1, 20))
def test_each_token_is_computed_once_and_only_the_last_chunk_samples(prompt_lengths, chunk):
    segments = cut_all(prompt_lengths, chunk)
    for slot, length in enumerate(prompt_lengths):
        mine = [s for s in segments if s.request == slot]
        covered = [t for s in mine for t in range(s.start, s.start + s.length)]
        assert covered == list(range(length))
        assert [s.sample for s in mine] == [False] * (len(mine) - 1) + [True]


@given(lengths, st.integers(1, 20))
def test_a_segment_brings_just_the_blocks_it_may_read_or_write(prompt_lengths, chunk):
    for s in cut_all(prompt_lengths, chunk):
        assert (len(s.blocks) - 1) * BLOCK < s.start + s.length <= len(s.blocks) * BLOCK


@given(lengths, st.integers(1, 20))
def test_packing_keeps_order_and_budget(prompt_lengths, chunk):
    segments = cut_all(prompt_lengths, chunk)
    groups = pack(segments, chunk)
    assert [s for group in groups for s in group] == segments
    for group in groups:
        assert sum(s.length for s in group) <= chunk
        if len(group) > 1:
            assert all(s.sample for s in group)
            assert len({s.request for s in group}) == len(group)


def test_short_prompts_share_a_micro_batch():
    groups = pack(cut_all([4] * 16, 16), 16)
    assert [len(group) for group in groups] == [4, 4, 4, 4]


def test_mates_do_not_change_how_a_prompt_is_cut():
    alone = [s.length for s in cut_all([37], 16)]
    with_mates = [s.length for s in cut_all([5, 37, 9], 16) if s.request == 1]
    assert with_mates == alone


def test_a_one_token_remainder_is_prefill():
    last = cut_all([17], 16)[-1]
    assert (last.start, last.length, last.sample) == (16, 1, True)


def test_decode_brings_the_block_of_its_own_token():
    blocks = (7, 8, 9)
    assert decode_segment(0, 7, blocks, BLOCK).blocks == (7, 8)
    assert decode_segment(0, 8, blocks, BLOCK).blocks == (7, 8, 9)
