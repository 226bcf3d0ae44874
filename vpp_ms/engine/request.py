"""`Request`: one prompt on its way from admission to its last token."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vpp_ms.engine.prompts import Prompt


@dataclass
class Request:
    """`slot` names the request inside segments. Times are seconds since the run's start."""

    slot: int
    prompt: Prompt
    chunks: tuple[int, ...] = ()
    output_token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    ttft_s: float | None = None
    prompt_logits_V: np.ndarray | None = None

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt.token_ids)

    @property
    def total_tokens(self) -> int:
        """The tokens whose KV the request may need: the last sampled one is never run."""
        return self.prompt_tokens + max(self.prompt.max_new_tokens - 1, 0)

    @property
    def num_computed(self) -> int:
        """Tokens with KV once the newest sampled token is about to run."""
        return self.prompt_tokens + len(self.output_token_ids) - 1

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def commit(self, token: int, eos_token_ids: frozenset[int], now_s: float) -> None:
        """Take one sampled token: it ends the request, or is appended.

        An end token is not part of the output. Only sampled tokens end a request.
        """
        if self.ttft_s is None:
            self.ttft_s = now_s
        if token in eos_token_ids:
            self.finish_reason = "stop"
            return
        self.output_token_ids.append(token)
        if len(self.output_token_ids) >= self.prompt.max_new_tokens:
            self.finish_reason = "length"

    def fail(self, error: str) -> None:
        self.error, self.finish_reason = error, "error"
