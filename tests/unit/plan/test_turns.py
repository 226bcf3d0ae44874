"""Layers by turns: every turn runs every layer once, and over the turns ranks do the same work."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.turns import partition_by_turns

placements = st.one_of(
    st.builds(Placement, st.just("plain"), st.integers(2, 16)),
    st.builds(Placement, st.sampled_from(["loop", "v"]), st.integers(2, 8), st.integers(2, 4)),
)


def loads(placement, ranges, costs, embedding=0.0, head=0.0):
    found = [0.0] * placement.num_ranks
    for stage, (first, end) in enumerate(ranges):
        found[placement.rank_of(stage)] += sum(costs[first:end])
    found[placement.rank_of(0)] += embedding
    found[placement.rank_of(len(ranges) - 1)] += head
    return found


def turns_of(placement, *arguments):
    try:
        return partition_by_turns(placement, *arguments)
    except PlanError:
        assume(False)


@given(placements, st.integers(2, 130), st.floats(0, 2), st.floats(0, 2), st.data())
def test_turns(placement, num_layers, embedding, head, data):
    assume(num_layers >= 2 * placement.num_stages)
    costs = data.draw(st.lists(st.floats(0.5, 2.0), min_size=num_layers, max_size=num_layers))
    turns = turns_of(placement, costs, embedding, head)
    for ranges in turns:
        assert ranges[0][0] == 0 and ranges[-1][1] == num_layers
        assert all(end == first for (_, end), (first, _) in pairwise(ranges))
        assert all(first < end for first, end in ranges)
    if len(turns) > 1:
        assert len(turns) >= placement.num_ranks
        total = [0.0] * placement.num_ranks
        for ranges in turns:
            for rank, load in enumerate(loads(placement, ranges, costs, embedding, head)):
                total[rank] += load / len(turns)
        mean = sum(total) / len(total)
        assert max(total) <= mean + 2 * max(costs) / len(turns) + 1e-9


def test_61_layers_on_two_ranks_take_turns_at_one_layer():
    turns = partition_by_turns(Placement("plain", 2), (1.0,) * 61)
    assert sorted(ranges[0] for ranges in turns) == [(0, 30), (0, 30), (0, 31), (0, 31)]


def test_neighbouring_turns_are_far_apart():
    turns = partition_by_turns(Placement("plain", 4), (1.0,) * 61)
    ends = [ranges[0][1] for ranges in turns]
    assert sorted(ends) == [15, 15, 15, 16]
    assert [ranges[1][1] for ranges in turns] in ([30, 31, 30, 31], [31, 30, 31, 30])


def test_in_a_v_only_the_first_sweep_moves():
    turns = partition_by_turns(Placement("v", 4, 2), (1.0,) * 61)
    assert len({ranges[4:] for ranges in turns}) == 1
    assert len({ranges[:4] for ranges in turns}) > 1


@pytest.mark.parametrize("kind", ["plain", "loop", "v"])
def test_layers_that_divide_evenly_take_no_turns(kind):
    placement = Placement(kind, 4, 1 if kind == "plain" else 2)
    assert len(partition_by_turns(placement, (1.0,) * 64)) == 1


def test_a_stage_without_a_layer_is_refused():
    with pytest.raises(PlanError, match="at least two layers in every stage of the first sweep"):
        partition_by_turns(Placement("v", 2, 2), (1.0,) * 4, embedding_cost=1.0)
