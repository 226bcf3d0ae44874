"""Layers by turns: what does not divide evenly among ranks is shared over the requests.

61 layers on two ranks are 31 and 30: one rank idles 1.6 % of the time, whatever the schedule. If
both hold the layer between them, and one runs it for even requests, the other for odd ones, both
do 30.5 on average. A request's layer runs where its KV lies, so nothing has to move. The price is
memory: a layer's weights and KV once more at each boundary that is shared.

Only the boundaries of the first sweep move, one between each two neighbouring ranks: that is
enough to give all ranks the same work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from vpp_ms.errors import PlanError
from vpp_ms.plan.partition import WHERE, Ranges, partition
from vpp_ms.plan.placement import Placement

MIN_TURNS = 4  # so finely a layer is shared at least


def partition_by_turns(
    placement: Placement,
    layer_costs: Sequence[float],
    embedding_cost: float = 0.0,
    head_cost: float = 0.0,
) -> tuple[Ranges, ...]:
    """[first, end) layers of each stage, for each turn; one turn where layers divide evenly.

    Over all turns every rank has the same work, up to a layer over the number of turns. Raises
    PlanError where a stage would be left without a layer.
    """
    base = partition(
        placement,
        len(layer_costs),
        layer_costs=layer_costs,
        embedding_cost=embedding_cost,
        head_cost=head_cost,
    )
    places = _even_boundaries(placement, base, layer_costs, embedding_cost, head_cost)
    num_turns = MIN_TURNS
    while num_turns < placement.num_ranks:
        num_turns *= 2
    turns = [_turn(base, places, _offset(turn, num_turns)) for turn in range(num_turns)]
    if any(first >= end for ranges in turns for first, end in ranges):
        raise PlanError(
            WHERE,
            "turns",
            allowed="at least two layers in every stage of the first sweep",
            hint="fewer virtual_stages",
        )
    return tuple(turns) if len(set(turns)) > 1 else tuple(turns[:1])


def _even_boundaries(
    placement: Placement,
    base: Ranges,
    layer_costs: Sequence[float],
    embedding_cost: float,
    head_cost: float,
) -> list[float]:
    """Where, in layers and parts of layers, the boundaries between ranks 0, 1, ... ought to be in
    the first sweep, all others being those of `base`."""
    before = (0.0, *accumulate(layer_costs))
    num_ranks = placement.num_ranks
    later = [0.0] * num_ranks  # a rank's work outside the first sweep's layers
    later[placement.rank_of(0)] += embedding_cost
    later[placement.rank_of(len(base) - 1)] += head_cost
    for stage, (first, end) in enumerate(base[num_ranks:], start=num_ranks):
        later[placement.rank_of(stage)] += before[end] - before[first]
    mean = (before[-1] + embedding_cost + head_cost) / num_ranks
    wanted = accumulate(mean - work for work in later[:-1])
    return [_place_of(work, before) for work in wanted]


def _place_of(work: float, before: Sequence[float]) -> float:
    """After how many layers so much work is done; layers count in parts."""
    layer = min(max(bisect_right(before, work) - 1, 0), len(before) - 2)
    return layer + (work - before[layer]) / (before[layer + 1] - before[layer])


def _offset(turn: int, num_turns: int) -> float:
    """Evenly spread in (0, 1), neighbours far apart: the bits of `turn`, mirrored."""
    bits = num_turns.bit_length() - 1
    mirrored = int(f"{turn:0{bits}b}"[::-1], 2)
    return (mirrored + 0.5) / num_turns


def _turn(base: Ranges, places: Sequence[float], offset: float) -> Ranges:
    """A boundary at 30.25 is at 31 in a quarter of the turns and else at 30."""
    inner = [end for _, end in base[:-1]]
    inner[: len(places)] = [int(place + offset + 1e-9) for place in places]
    bounds = [0, *inner, base[-1][1]]
    return tuple(pairwise(bounds))
