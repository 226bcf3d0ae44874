"""Layers over virtual stages: contiguous, in model order, every layer exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, permutations

from vpp_ms.errors import PlanError
from vpp_ms.plan.placement import Placement

WHERE = "vpp.layer_split"
Ranges = tuple[tuple[int, int], ...]


def partition(
    placement: Placement,
    num_layers: int,
    split: str | Sequence[int] | Sequence[tuple[int, int]] = "auto",
    layer_costs: Sequence[float] = (),
    embedding_cost: float = 0.0,
    head_cost: float = 0.0,
) -> Ranges:
    """[first, end) layers of each stage.

    "auto" minimises the dearest rank's sum (only the sum of a rank's stages must match), then
    evens out ranks and stages; equal layers are assumed without `layer_costs`. An explicit
    split gives counts per stage or [first, end) pairs. Raises PlanError.
    """
    check_enough_layers(placement, num_layers)
    if isinstance(split, str):
        if split != "auto":
            raise PlanError(WHERE, repr(split), allowed="auto, counts or [first, end) per stage")
        costs = tuple(layer_costs) or (1.0,) * num_layers
        assert len(costs) == num_layers, f"{len(costs)} costs for {num_layers} layers"
        return _balance(placement, costs, embedding_cost, head_cost)
    return _explicit(tuple(split), placement, num_layers)


def check_enough_layers(placement: Placement, num_layers: int) -> None:
    """Raises PlanError when stages outnumber layers."""
    if placement.num_stages > num_layers:
        raise PlanError(
            "vpp.virtual_stages",
            f"{placement.num_stages} stages ({placement.num_ranks} ranks x "
            f"{placement.virtual_stages}) for {num_layers} layers",
            allowed=f"at most {num_layers} stages",
            hint="fewer virtual_stages or a smaller pipeline_stage",
        )


def even_counts(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Layers per stage; the first stages get the remainder."""
    share, rest = divmod(num_layers, num_stages)
    return tuple(share + (stage < rest) for stage in range(num_stages))


def _ranges(counts: Sequence[int]) -> Ranges:
    ends = tuple(accumulate(counts))
    return tuple((end - count, end) for count, end in zip(counts, ends, strict=True))


def _balance(
    placement: Placement, costs: Sequence[float], embedding_cost: float, head_cost: float
) -> Ranges:
    """Local search from the even split: move one layer's worth from any stage to any other.

    A move shifts all stages between the two; the first best move is taken until none helps.
    """
    before = (0.0, *accumulate(costs))
    rank_of = [placement.rank_of(stage) for stage in range(placement.num_stages)]

    def score(counts: Sequence[int]) -> tuple[float, float, float]:
        loads = [before[end] - before[first] for first, end in _ranges(counts)]
        loads[0] += embedding_cost
        loads[-1] += head_cost
        of_rank = [0.0] * placement.num_ranks
        for rank, load in zip(rank_of, loads, strict=True):
            of_rank[rank] += load
        return max(of_rank), sum(x * x for x in of_rank), sum(x * x for x in loads)

    counts = even_counts(len(costs), placement.num_stages)
    best = score(counts)
    ideal = (before[-1] + embedding_cost + head_cost) / placement.num_ranks
    while _better((ideal,), best[:1]):
        moves = [
            (score(moved), moved)
            for giver, taker in permutations(range(placement.num_stages), 2)
            if (moved := _move(counts, giver, taker)) is not None
        ]
        if not moves:
            return _ranges(counts)
        found, moved = min(moves, key=lambda move: move[0])
        if not _better(found, best):
            return _ranges(counts)
        best, counts = found, moved
    return _ranges(counts)


def _move(counts: tuple[int, ...], giver: int, taker: int) -> tuple[int, ...] | None:
    if counts[giver] == 1:
        return None
    step = {giver: -1, taker: 1}
    return tuple(count + step.get(stage, 0) for stage, count in enumerate(counts))


def _better(new: Sequence[float], old: Sequence[float]) -> bool:
    """Lexicographic, with float noise counted as a tie (the even split then stays)."""
    for a, b in zip(new, old, strict=True):
        if abs(a - b) > 1e-9 * max(abs(a), abs(b)):
            return a < b
    return False


def _explicit(split: tuple, placement: Placement, num_layers: int) -> Ranges:
    num_stages = placement.num_stages
    if len(split) != num_stages:
        raise PlanError(
            WHERE,
            f"{len(split)} entries",
            allowed=f"{num_stages}, one per stage "
            f"({placement.num_ranks} ranks x {placement.virtual_stages})",
        )
    if all(isinstance(entry, int) for entry in split):
        return _from_counts(split, num_layers)
    if all(not isinstance(entry, int) and len(entry) == 2 for entry in split):
        return _from_pairs(split, num_layers)
    raise PlanError(WHERE, list(split), allowed="all counts, or all [first, end) pairs")


def _from_counts(counts: tuple[int, ...], num_layers: int) -> Ranges:
    if min(counts) < 1:
        raise PlanError(WHERE, list(counts), allowed="at least one layer per stage")
    if sum(counts) != num_layers:
        raise PlanError(
            WHERE, f"{list(counts)}, {sum(counts)} layers", allowed=f"{num_layers} layers in all"
        )
    return _ranges(counts)


def _from_pairs(pairs: tuple, num_layers: int) -> Ranges:
    expected = 0
    for stage, (first, end) in enumerate(pairs):
        where = f"{WHERE}[{stage}]"
        if end <= first:
            raise PlanError(where, f"[{first}, {end})", allowed="first < end")
        if first > expected:
            raise PlanError(
                where, f"[{first}, {end})", allowed=f"first = {expected}",
                hint=f"layers {expected} to {first - 1} are on no stage before it",
            )  # fmt: skip
        if first < expected:
            raise PlanError(
                where, f"[{first}, {end})", allowed=f"first = {expected}",
                hint="stages must not overlap and must keep model order",
            )  # fmt: skip
        expected = end
    if expected != num_layers:
        raise PlanError(
            WHERE, f"ends at layer {expected}", allowed=f"{num_layers}, the model's layers"
        )
    return tuple((int(first), int(end)) for first, end in pairs)
