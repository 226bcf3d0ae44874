"""`StageCompute`: what the executor needs of one virtual stage, real or emulated."""

from __future__ import annotations

from typing import Any, Protocol

from vpp_ms.schedule.actions import MicroBatch


class StageCompute(Protocol):
    """One virtual stage on one rank.

    payload in: token ids int32 [T] for the first stage, else hidden states [T, H].
    payload out: hidden states [T, H]; for the last stage float32 logits [R, V] of the R segments
    with `sample` set, in segment order, or None when R = 0. Returns when computed: the time of
    `run` is the stage's busy time.
    """

    stage: int

    def run(self, micro_batch: MicroBatch, payload: Any) -> Any | None: ...

    def example_payload(self, num_tokens: int) -> Any:
        """A payload of `num_tokens` tokens of the right kind, to time or compile with."""

    def warm_up(self) -> None:
        """Compile and touch all that the first real call would pay for."""
