"""Placement: which rank holds which virtual stage, and which hand-overs need a message."""

from __future__ import annotations

from dataclasses import dataclass

from vpp_ms.errors import PlanError

KINDS = ("plain", "loop", "v")


@dataclass(frozen=True, order=True)
class Link:
    """One FIFO channel between two ranks: the hand-over behind stage `source_stage`.

    Behind the last stage it is the return link to rank 0, which carries logits.
    """

    source: int
    target: int
    source_stage: int

    @property
    def name(self) -> str:
        return f"s{self.source_stage}_r{self.source}_r{self.target}"


@dataclass(frozen=True)
class Placement:
    """`num_ranks` ranks hold `virtual_stages` stages each, S = num_ranks * virtual_stages.

    plain: stage s on rank s (v = 1). loop: stage s on rank s mod P. v: sweeps go down, up,
    down, ...; where a sweep turns (the fold) two neighbouring stages share a rank.
    """

    kind: str
    num_ranks: int
    virtual_stages: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlanError("vpp.placement", repr(self.kind), allowed=", ".join(KINDS))
        if self.num_ranks < 1:
            raise PlanError("parallel_config.pipeline_stage", self.num_ranks, allowed=">= 1")
        if self.virtual_stages < 1:
            raise PlanError("vpp.virtual_stages", self.virtual_stages, allowed=">= 1")
        if self.kind == "plain" and self.virtual_stages != 1:
            raise PlanError(
                "vpp.virtual_stages",
                f"{self.virtual_stages} with placement plain",
                allowed="1",
                hint="vpp.placement: v or loop",
            )

    @property
    def num_stages(self) -> int:
        return self.num_ranks * self.virtual_stages

    def rank_of(self, stage: int) -> int:
        sweep, position = divmod(stage, self.num_ranks)
        if self.kind == "v" and sweep % 2 == 1:
            return self.num_ranks - 1 - position
        return position

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The rank's stages in model order."""
        return tuple(s for s in range(self.num_stages) if self.rank_of(s) == rank)

    def link_behind(self, stage: int) -> Link | None:
        """The message behind `stage`, or None where the hand-over stays on the rank."""
        last = stage == self.num_stages - 1
        source, target = self.rank_of(stage), 0 if last else self.rank_of(stage + 1)
        return None if source == target else Link(source, target, stage)

    def links(self) -> tuple[Link, ...]:
        found = (self.link_behind(stage) for stage in range(self.num_stages))
        return tuple(link for link in found if link is not None)
