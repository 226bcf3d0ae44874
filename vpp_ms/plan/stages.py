"""`StageSpec` and `WindowSpec`: the small parts a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageSpec:
    """One virtual stage: layers [first_layer, end_layer); the first embeds, the last has the
    head."""

    index: int
    rank: int
    first_layer: int
    end_layer: int
    is_first: bool
    is_last: bool

    @property
    def num_layers(self) -> int:
        return self.end_layer - self.first_layer


@dataclass(frozen=True)
class WindowSpec:
    """Caps on what is in flight: a number, and predicted work in units of the dearest
    micro-batch (None: no cap in time)."""

    micro_batches: int
    time_chunks: float | None = None
