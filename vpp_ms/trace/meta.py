"""What a trace tells of its run so that it can be explained later: the plan and its cargo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vpp_ms.errors import VppError
from vpp_ms.plan.placement import Placement
from vpp_ms.plan.stages import StageSpec
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.trace.cargo import Cargo, cargo_meta
from vpp_ms.trace.events import Trace


class Described(Protocol):
    """What of a plan a trace repeats. A `Plan` is one."""

    @property
    def method(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def stages(self) -> tuple[StageSpec, ...]: ...


@dataclass(frozen=True)
class RunMeta:
    """`model` is the plan's fingerprint of the model."""

    method: str
    plan_hash: str
    model: str
    placement: Placement
    stages: tuple[StageSpec, ...]
    cargo: Cargo


def run_meta(
    plan: Described,
    micro_batches: Iterable[MicroBatch],
    requests: Sequence[str] = (),
    arrivals_s: Sequence[float] | None = None,
) -> dict[str, Any]:
    """A trace's `meta`, which `read_meta` reads back. `layers`: [first, end) of each stage;
    `turns`: of each stage those of each turn, where there are several."""
    return {
        "method": plan.method,
        "placement": plan.placement.kind,
        "virtual_stages": plan.placement.virtual_stages,
        "layers": [[stage.first_layer, stage.end_layer] for stage in plan.stages],
        "turns": [stage.turns for stage in plan.stages if stage.turns],
        "model": plan.model,
        "plan_hash": plan.hash,
        **cargo_meta(micro_batches, requests, arrivals_s),
    }


def read_meta(trace: Trace, where: str = "trace") -> RunMeta:
    """Raises VppError for a trace that does not tell what was run."""
    meta: Any = trace.meta
    try:
        placement = Placement(meta["placement"], trace.num_ranks, meta["virtual_stages"])
        last = placement.num_stages - 1
        turns = [tuple(map(tuple, turns)) for turns in meta.get("turns", ())]
        stages = tuple(
            StageSpec(
                index,
                placement.rank_of(index),
                first,
                end,
                index == 0,
                index == last,
                turns[index] if turns else (),
            )
            for index, (first, end) in enumerate(meta["layers"])
        )
        cargo = Cargo.of(trace)
        if not cargo.segments or len(stages) != placement.num_stages:
            raise KeyError("segments")
        return RunMeta(meta["method"], meta["plan_hash"], meta["model"], placement, stages, cargo)
    except (KeyError, TypeError, ValueError) as error:
        raise VppError(
            where,
            "does not say which micro-batches ran on which layers",
            allowed="a trace.json written by this version",
            hint="run again",
        ) from error
