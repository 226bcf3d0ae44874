"""Layers over stages: balance, coverage, and every way to get an explicit split wrong."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.errors import PlanError
from vpp_ms.plan.partition import partition
from vpp_ms.plan.placement import Placement


def counts(ranges):
    return [end - first for first, end in ranges]


def rank_loads(placement, ranges, costs, embedding=0.0, head=0.0):
    loads = [0.0] * placement.num_ranks
    loads[0] += embedding
    loads[placement.rank_of(placement.num_stages - 1)] += head
    for stage, (first, end) in enumerate(ranges):
        loads[placement.rank_of(stage)] += sum(costs[first:end])
    return loads


@pytest.mark.parametrize("placement", [Placement("plain", 4), Placement("v", 2, 2)])
def test_the_first_of_four_stages_gets_the_remainder_of_61(placement):
    assert counts(partition(placement, 61)) == [16, 15, 15, 15]


@pytest.mark.parametrize("placement", [Placement("plain", 8), Placement("v", 4, 2)])
def test_the_first_of_eight_stages_get_the_remainder_of_61(placement):
    assert counts(partition(placement, 61)) == [8, 8, 8, 8, 8, 7, 7, 7]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("kind", "v"), [("plain", 1), ("loop", 2), ("v", 2), ("v", 4), ("loop", 4)]
)
def test_five_layers_are_all_there_once_or_the_error_names_both_numbers(ranks, kind, v):
    placement = Placement(kind, ranks, v)
    if placement.num_stages > 5:
        with pytest.raises(PlanError, match=f"{placement.num_stages} stages.* 5 layers"):
            partition(placement, 5)
        return
    ranges = partition(placement, 5)
    assert [layer for first, end in ranges for layer in range(first, end)] == [0, 1, 2, 3, 4]


def test_six_stages_for_five_layers_names_both():
    with pytest.raises(PlanError, match=r"6 stages.*5 layers"):
        partition(Placement("plain", 6), 5)


def test_a_dear_head_moves_layers_off_its_rank():
    ranges = partition(Placement("plain", 2), 12, head_cost=2.0)
    assert counts(ranges) == [7, 5]


def test_under_v_embedding_and_head_weigh_on_rank_0():
    placement = Placement("v", 2, 2)
    ranges = partition(placement, 20, embedding_cost=1.0, head_cost=1.0)
    assert max(rank_loads(placement, ranges, [1.0] * 20, 1.0, 1.0)) == 11.0


placements = st.one_of(
    st.builds(Placement, st.just("plain"), st.integers(1, 4)),
    st.builds(Placement, st.sampled_from(["v", "loop"]), st.integers(1, 3), st.integers(1, 3)),
)


@given(data=st.data(), placement=placements, extra=st.tuples(st.floats(0, 3), st.floats(0, 3)))
def test_auto_covers_all_layers_and_is_near_the_optimum(data, placement, extra):
    num_layers = data.draw(st.integers(placement.num_stages, placement.num_stages + 5))
    cost = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.5])
    costs = data.draw(st.lists(cost, min_size=num_layers, max_size=num_layers))
    ranges = partition(placement, num_layers, "auto", costs, *extra)
    assert [n for first, end in ranges for n in range(first, end)] == list(range(num_layers))
    assert all(end > first for first, end in ranges)
    got = max(rank_loads(placement, ranges, costs, *extra))
    best = min(
        max(rank_loads(placement, list(zip((0, *cuts), (*cuts, num_layers), strict=True)), costs,
                       *extra))
        for cuts in combinations(range(1, num_layers), placement.num_stages - 1)
    )  # fmt: skip
    assert best - 1e-9 <= got <= best + max(costs) + 1e-9


@pytest.mark.parametrize("split", [(2, 1, 1, 1), ((0, 2), (2, 3), (3, 4), (4, 5))])
def test_an_explicit_split_is_taken_as_it_is(split):
    assert partition(Placement("v", 2, 2), 5, split) == ((0, 2), (2, 3), (3, 4), (4, 5))


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ((3, 1, 1), "3 entries.*4"),
        ((2, 1, 1, 2), "6 layers.*5 layers"),
        ((3, 0, 1, 1), "at least one layer"),
        (((0, 2), (3, 4), (4, 5), (5, 6)), r"layer_split\[1\].*layers 2 to 2"),
        (((0, 2), (1, 3), (3, 4), (4, 5)), r"layer_split\[1\].*overlap"),
        (((2, 3), (0, 2), (3, 4), (4, 5)), r"layer_split\[0\]"),
        (((0, 2), (2, 2), (2, 4), (4, 5)), r"layer_split\[1\].*first < end"),
        (((0, 1), (1, 2), (2, 3), (3, 4)), "ends at layer 4.*5"),
        ((2, 1, (3, 4), 1), "all counts"),
        ("even", "auto"),
    ],
)
def test_a_wrong_split_is_refused(split, says):
    with pytest.raises(PlanError, match=says):
        partition(Placement("v", 2, 2), 5, split)


def test_many_stages_are_split_in_a_blink():
    ranges = partition(Placement("v", 16, 4), 94, "auto", [1.0] * 90 + [1.5] * 4, 0.3, 0.1)
    assert sum(counts(ranges)) == 94
