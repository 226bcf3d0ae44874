"""`StageSpec` and `WindowSpec`: the small parts a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageSpec:
    """One virtual stage; the first embeds, the last has the head.

    Layers [first_layer, end_layer) are held. `turns`: [first, end) of those that run for request
    number r, by r modulo the number of turns; () where all of them run for every request.
    """

    index: int
    rank: int
    first_layer: int
    end_layer: int
    is_first: bool
    is_last: bool
    turns: tuple[tuple[int, int], ...] = ()

    @property
    def num_layers(self) -> int:
        return self.end_layer - self.first_layer

    @property
    def num_turns(self) -> int:
        return len(self.turns) or 1

    def layers_of(self, request: int) -> range:
        """The layers that run for a request."""
        if not self.turns:
            return range(self.first_layer, self.end_layer)
        return range(*self.turns[request % len(self.turns)])


@dataclass(frozen=True)
class WindowSpec:
    """Caps on what is in flight: a number, and predicted work in units of the dearest
    micro-batch (None: no cap in time)."""

    micro_batches: int
    time_chunks: float | None = None
