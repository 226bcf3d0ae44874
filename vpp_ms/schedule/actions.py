"""What crosses the pipeline, and the one step a rank can take with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Segment:
    """`length` consecutive tokens of one request, from absolute position `start`.

    `sample`: the logits of the segment's last token are wanted (it ends the prompt, or it is a
    decode token). `blocks`: the request's KV block table, covering start + length tokens.
    """

    request: int
    start: int
    length: int
    sample: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class MicroBatch:
    """What crosses the pipeline at once. All that a rank needs to know travels in it.

    `index` counts injections from 0: within one stage micro-batches run in this order. One
    without segments is the drain mark behind the last real micro-batch of a run.
    `priority[s]`: among ready actions of a rank the greatest runs first; set by a policy.
    """

    index: int
    segments: tuple[Segment, ...]
    priority: tuple[float, ...]

    @property
    def num_tokens(self) -> int:
        return sum(segment.length for segment in self.segments)

    @property
    def num_samples(self) -> int:
        return sum(segment.sample for segment in self.segments)


class Action(NamedTuple):
    """Compute one micro-batch on one stage. Needs (stage - 1, index) and (stage, index - 1)."""

    stage: int
    micro_batch: int
