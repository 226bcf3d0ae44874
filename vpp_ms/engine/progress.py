"""What a rank tells whoever watches the run, at most a few times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vpp_ms.executor.recorder import Recorder
from vpp_ms.schedule.actions import Segment

Report = Callable[[dict], None]
INTERVAL_S = 0.25
BUSY_INTERVAL_S = 1.0


class Progress:
    """Every rank reports its busy share; rank 0 also how much of the prompts is prefilled."""

    def __init__(self, rank: int, recorder: Recorder, report: Report) -> None:
        self._rank, self._recorder, self._report = rank, recorder, report
        self._chunks_done = self._chunks_total = 0
        self._tokens_done = self._tokens_total = 0
        self._told_s = self._busy_told_s = 0.0

    def tick(self) -> None:
        """Called between actions."""
        now_s = self._recorder.elapsed_s
        if now_s - self._busy_told_s >= BUSY_INTERVAL_S:
            self._busy_told_s = now_s
            share = self._recorder.busy_share
            self._report({"kind": "busy", "rank": self._rank, "busy_share": share})

    def expect(self, groups: Sequence[Sequence[Segment]]) -> None:
        """Micro-batches of prompts that were admitted."""
        self._chunks_total += len(groups)
        self._tokens_total += sum(segment.length for group in groups for segment in group)

    def sampled(self, request: str, token: int) -> None:
        """A token of the answer."""
        self._report({"kind": "token", "id": request, "token": token})

    def prefilled(self, num_tokens: int) -> None:
        """One of them has crossed the pipeline."""
        self._chunks_done += 1
        self._tokens_done += num_tokens
        now_s = self._recorder.elapsed_s
        is_last = self._chunks_done == self._chunks_total
        if now_s - self._told_s < INTERVAL_S and not is_last:
            return
        self._told_s = now_s
        self._report(
            {
                "kind": "progress",
                "chunks_done": self._chunks_done,
                "chunks_total": self._chunks_total,
                "tokens_done": self._tokens_done,
                "tokens_total": self._tokens_total,
                "tokens_per_s": self._tokens_done / max(now_s, 1e-9),
                "elapsed_s": now_s,
            }
        )
        if is_last:
            self._report({"kind": "phase", "rank": self._rank, "phase": "decode"})
