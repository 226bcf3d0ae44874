"""Chunk rules: the published plans, and the published defects that ours must not have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.config.schema import ChunkingConfig
from vpp_ms.errors import PlanError
from vpp_ms.plan.chunking import METHODS, ChunkRule, Fit, LatencyModel, chunk_rule

GOLDEN_MODEL = LatencyModel(a=1e-6, b=0.01, c=1.0)


def dynamic(latency=GOLDEN_MODEL, **keys):
    rule, reason = chunk_rule(ChunkingConfig(**keys), "dynamic", latency)
    assert reason is None
    return rule


def test_sglang_golden_plan():
    chunks = dynamic(chunk_tokens=12288, alignment=64, preset="sglang").cut(131072)
    assert chunks[:8] == (12288, 8000, 6720, 6080, 5632, 5312, 5056, 4928)
    assert chunks[-2:] == (3840, 2176)
    assert len(chunks) == 27


def test_sglang_golden_plan_with_other_smoothing():
    rule = dynamic(chunk_tokens=12288, alignment=64, preset="sglang", smoothing=0.65)
    chunks = rule.cut(131072)
    assert len(chunks) == 22
    assert chunks[-1] == 3776


def test_vllm_ascend_golden_plan():
    chunks = dynamic(chunk_tokens=12288, alignment=128, preset="vllm_ascend").cut(131072)
    assert chunks == (12288, 6656, 5248, 4480, *[4096] * 24, 4096)


def test_atom_pays_for_the_prefix_and_keeps_a_floor():
    model = LatencyModel(a=1e-6, b=0.01, c=1.0, gamma=0.002)
    rule = dynamic(model, chunk_tokens=12288, alignment=64, preset="atom")
    plain = dynamic(chunk_tokens=12288, alignment=64, preset="sglang")
    assert rule.depth_size(0) == 12288
    assert rule.depth_size(30_000) < plain.depth_size(30_000)
    assert rule.depth_size(10_000_000) == 4096  # the prefix alone is dearer than the first chunk


def test_without_smoothing_every_chunk_takes_as_long_as_the_first():
    rule = ChunkRule("dynamic", 4096, latency=GOLDEN_MODEL)
    start = 0
    for size in rule.cut(40_000)[:-2]:
        assert GOLDEN_MODEL.time_of(start, size) == pytest.approx(
            GOLDEN_MODEL.time_of(0, 4096), rel=1e-3
        )
        start += size


def test_a_prefix_hit_counts_with_its_true_length():
    rule = dynamic(chunk_tokens=16, latency=LatencyModel(1e-3, 0.01, 0.1), preset="sglang")
    whole = rule.cut(80)
    assert rule.cut(16, start=64)[0] == rule.depth_size(64) < whole[0]


def test_an_absolute_floor_does_not_switch_dynamic_chunks_off():
    rule = dynamic(chunk_tokens=512, preset="vllm_ascend", latency=LatencyModel(1e-5, 0.01, 1))
    assert rule.min_tokens == 128
    assert rule.depth_size(20_000) < 512


def test_fixed_is_the_chunk_size_and_a_remainder():
    assert ChunkRule("fixed", 16).cut(17) == (16, 1)
    assert ChunkRule("fixed", 16).cut(31) == (16, 15)
    assert ChunkRule("fixed", 16).cut(32) == (16, 16)
    assert ChunkRule("fixed", 1).cut(3) == (1, 1, 1)


def test_no_empty_chunk_behind_a_full_prefix_hit():
    for method in ("fixed", "tail"):
        assert ChunkRule(method, 16).cut(0, start=20) == ()
    assert ChunkRule("fixed", 16).cut(8, start=20) == (8,)


def test_tail_cuts_the_last_two_chunks():
    assert ChunkRule("tail", 32).cut(128) == (32, 32, 16, 16, 8, 8, 8, 8)
    assert ChunkRule("tail", 32).cut(64) == (16, 16, 8, 8, 8, 8)


def test_a_dynamic_tail_is_dynamic_but_for_the_last_two_chunks():
    whole, split = (
        chunk_rule(ChunkingConfig(chunk_tokens=12288, alignment=64), method, GOLDEN_MODEL)[0]
        for method in ("dynamic", "dynamic_tail")
    )
    left, right = whole.cut(131072), split.cut(131072)
    common = len(left) - 2
    assert left[:common] == right[:common]
    at_the_end = split.depth_size(sum(left[:common]))
    assert right[common] == pytest.approx(at_the_end / 2, abs=64)
    assert all(size <= at_the_end / 2 for size in right[common:])
    assert right[-1] <= at_the_end / 4 + 64
    assert split.cut(5000) == (5000,)


def test_tail_leaves_a_short_prompt_alone():
    assert ChunkRule("tail", 32).cut(32) == (32,)
    assert ChunkRule("tail", 32).cut(5) == (5,)


def test_a_tiny_tail_joins_the_chunk_before_it():
    rule = dynamic(chunk_tokens=64, latency=LatencyModel(1e-3, 0.01, 0.1), preset="sglang")
    first = rule.depth_size(0)
    second = rule.depth_size(first)
    tiny = second // 2 - 1
    assert rule.cut(first + second + tiny) == (first, second + tiny)


def test_a_tiny_tail_that_does_not_fit_shares_with_the_chunk_before_it():
    rule = dynamic(chunk_tokens=16, latency=LatencyModel(1e-3, 0.01, 0.1), preset="sglang")
    assert rule.cut(17) == (9, 8)


@pytest.mark.parametrize("method", ["fixed", "tail"])
def test_an_alignment_longer_than_the_chunk_is_refused(method):
    with pytest.raises(PlanError, match=r"64 with chunk_tokens 16.*1 to 16"):
        chunk_rule(ChunkingConfig(chunk_tokens=16, alignment=64), method)


def test_a_floor_longer_than_the_chunk_is_refused():
    with pytest.raises(PlanError, match=r"min_chunk_tokens.*1 to 16"):
        dynamic(chunk_tokens=16, min_chunk_tokens=17)


@pytest.mark.parametrize(
    "latency",
    [
        None,
        Fit(None, "rank 1 could not be profiled"),
        LatencyModel(-1e-6, 0.01, 1.0),
        LatencyModel(0.0, 0.01, 1.0),
        LatencyModel(1e-6, -0.01, 1.0),
        LatencyModel(float("nan"), 0.01, 1.0),
        LatencyModel(float("inf"), 0.01, 1.0),
    ],
)
def test_without_a_sound_latency_model_chunks_are_fixed_and_one_reason_is_given(latency):
    rule, reason = chunk_rule(ChunkingConfig(chunk_tokens=16), "dynamic", latency)
    assert rule == ChunkRule("fixed", 16)
    assert reason


latencies = st.builds(
    LatencyModel,
    a=st.floats(1e-9, 1e-2),
    b=st.floats(0.0, 1.0),
    c=st.floats(0.0, 10.0),
    gamma=st.sampled_from([0.0, 1e-4, 0.1]),
)


@st.composite
def rules(draw, methods=METHODS):
    chunk = draw(st.integers(1, 300))
    keys = ChunkingConfig(
        chunk_tokens=chunk,
        alignment=draw(st.integers(1, chunk)),
        preset=draw(st.sampled_from(["sglang", "vllm_ascend", "atom"])),
        smoothing=draw(st.sampled_from([None, 0.0, 0.5, 1.0])),
        min_chunk_tokens=draw(st.none() | st.integers(1, chunk)),
    )
    latency = draw(latencies.filter(lambda model: model.flaw(chunk) is None))
    rule, reason = chunk_rule(keys, draw(st.sampled_from(methods)), latency)
    assert reason is None
    return rule


@given(rule=rules(), length=st.integers(0, 3000), start=st.integers(0, 5000))
def test_chunks_are_positive_bounded_and_add_up(rule, length, start):
    chunks = rule.cut(length, start)
    assert sum(chunks) == length
    assert all(0 < size <= rule.chunk_tokens for size in chunks)
    assert all(size % rule.alignment == 0 for size in chunks[:-1])


@given(rule=rules(), length=st.integers(1, 3000))
def test_next_size_is_the_head_of_the_cut(rule, length):
    chunks = rule.cut(length)
    assert rule.next_size(0, length) == chunks[0]
    assert rule.cut(length - chunks[0], chunks[0]) == chunks[1:]


@given(
    rule=rules(methods=("dynamic", "dynamic_tail")),
    depths=st.lists(st.integers(0, 1 << 22), min_size=2),
)
def test_a_deeper_chunk_is_never_longer(rule, depths):
    sizes = [rule.depth_size(depth) for depth in sorted(depths)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 1


@given(rule=rules(methods=("dynamic",)), length=st.integers(1, 3000))
def test_a_dynamic_plan_never_ends_in_a_tiny_chunk(rule, length):
    chunks = rule.cut(length)
    assert list(chunks[:-1]) == sorted(chunks[:-1], reverse=True)
    if len(chunks) > 1:
        assert 2 * (chunks[-1] + rule.alignment) >= chunks[-2]
