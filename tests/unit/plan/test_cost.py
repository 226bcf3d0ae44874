"""The cost model: FLOPs counted right, prefixes with their true length, additive over stages."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.plan.cost import CostModel, PartCost
from vpp_ms.plan.plan import StageSpec
from vpp_ms.schedule.actions import Segment

SPEC = ModelSpec(
    "toy", 5, 32, 4, 2, 8, 97, 64, 128, moe=MoESpec(8, 2, 16), dense_layers=(0,)
)  # fmt: skip
COST = CostModel.of(SPEC, flops_per_s=1.0)


def test_flops_of_a_moe_layer_by_hand():
    projections = 2 * 32 * (32 + 16 + 16) + 2 * 32 * 32
    experts = 2 * (3 * 2 * 32 * 16) + 2 * 32 * 8
    attention = 4 * (4 * 8)  # per query and key: a product with K and one with V
    tokens, prefix = 10, 30
    pairs = tokens * prefix + tokens * tokens / 2
    expected = tokens * (projections + experts) + attention * pairs
    assert COST.stage_time_s([1], [Segment(0, prefix, tokens)]) == pytest.approx(expected)


def test_a_dense_layer_has_one_wide_ffn():
    dense = 2 * 32 * (2 * 32 + 2 * 16) + 3 * 2 * 32 * 64
    assert COST.layers["dense"].token_s == pytest.approx(dense)


def test_only_sampled_rows_pay_for_the_head():
    segment = Segment(0, 0, 8)
    without = COST.stage_time_s([4], [segment], is_last=True)
    sampled = COST.stage_time_s([4], [replace(segment, sample=True)], is_last=True)
    assert sampled - without == pytest.approx(2 * 32 * 97)
    assert without == pytest.approx(COST.stage_time_s([4], [segment]))


def test_a_prefix_hit_costs_its_true_length():
    hit = COST.stage_time_s([1], [Segment(0, 64, 16)])
    cold = COST.stage_time_s([1], [Segment(0, 0, 16)])
    assert hit - cold == pytest.approx(128 * 16 * 64)  # 4 heads x 8 x 4 FLOPs per pair


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_all_partitions_of_a_prompt_cost_the_same_but_for_launches(lengths):
    cost = replace(COST, stage=PartCost(launch_s=7.0))
    starts = [0, *accumulate(lengths)][:-1]
    parts = [
        cost.stage_time_s(range(5), [Segment(0, start, length)])
        for start, length in zip(starts, lengths, strict=True)
    ]
    whole = cost.stage_time_s(range(5), [Segment(0, 0, sum(lengths))])
    assert sum(parts) == pytest.approx(whole + 7.0 * (len(lengths) - 1))


def stages(bounds):
    last = len(bounds) - 2
    return [
        StageSpec(i, i, first, end, i == 0, i == last)
        for i, (first, end) in enumerate(pairwise(bounds))
    ]


def test_a_table_of_all_stages_equals_single_questions():
    groups = [(Segment(0, 0, 16),), (Segment(0, 16, 7, sample=True), Segment(1, 0, 3, sample=True))]
    split = stages([0, 1, 3, 5])
    table_nS = COST.for_stages(split).table(groups)
    assert table_nS.shape == (2, 3)
    for row, group in zip(table_nS, groups, strict=True):
        single = [
            COST.stage_time_s(
                range(s.first_layer, s.end_layer), group, is_first=s.is_first, is_last=s.is_last
            )
            for s in split
        ]
        np.testing.assert_allclose(row, single)
        np.testing.assert_allclose(COST.for_stages(split)(group), single)
    assert table_nS.sum() == pytest.approx(COST.for_stages(stages([0, 5])).table(groups).sum())


def test_an_empty_list_of_micro_batches_is_an_empty_table():
    assert COST.for_stages(stages([0, 2, 5])).table([]).shape == (0, 2)


def test_prefix_tokens_can_have_a_price_of_their_own():
    mla = CostModel({"moe": PartCost(token_s=1.0, prefix_token_s=0.5)}, ("moe",))
    assert mla.stage_time_s([0], [Segment(0, 100, 10)]) == pytest.approx(10 + 50)


def test_latency_terms_describe_the_whole_model():
    a, b, c, gamma = replace(COST, stage=PartCost(launch_s=3.0)).latency_terms()
    expected = COST.stage_time_s(range(5), [Segment(0, 40, 8)], is_first=True) + 3.0
    assert c + gamma * 40 + b * 8 + a * (2 * 40 * 8 + 64) == pytest.approx(expected)
