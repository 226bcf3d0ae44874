"""`Graph`: a cell compiled once for every shape, and once more for shapes that must be quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn


class Graph:
    """`inputs` are the shapes of the cell's tensor arguments; those behind are Parameters.

    The first call compiles for all shapes. While `pinning` is set a call compiles for just its
    shapes, and later calls with these take that graph. An operation costs some 40 microseconds
    in a graph for all shapes and 10 in one for one: worth it for decode tokens.
    """

    def __init__(self, make: Callable[[], nn.Cell], *inputs: Tensor) -> None:
        self._make, self._inputs = make, inputs
        self._dynamic: nn.Cell | None = None
        self._pinned: dict[tuple, nn.Cell] = {}
        self.pinning = False

    def __call__(self, *args: Tensor) -> Any:
        shapes = self._shapes(args) if self._pinned or self.pinning else ()
        if self.pinning and shapes not in self._pinned:
            inputs = zip(shapes, self._inputs, strict=True)
            exact = [Tensor(shape=list(shape), dtype=i.dtype) for shape, i in inputs]
            self._pinned[shapes] = self._compile(exact, args)
        cell = self._pinned.get(shapes) or self._dynamic
        if cell is None:
            cell = self._dynamic = self._compile(self._inputs, args)
        return cell(*args)

    def _shapes(self, args: Sequence[Tensor]) -> tuple:
        return tuple(arg.shape for arg in args[: len(self._inputs)])

    def _compile(self, inputs: Sequence[Tensor], args: Sequence[Tensor]) -> nn.Cell:
        """Parameters of other layers, of the same shapes, will not compile it again."""
        cell = self._make()
        cell.set_inputs(*inputs, *args[len(inputs) :])
        return cell


def f32(*shape: int | None) -> Tensor:
    """The shape of an input: None is any length."""
    return Tensor(shape=list(shape), dtype=ms.float32)


def i32(*shape: int | None) -> Tensor:
    return Tensor(shape=list(shape), dtype=ms.int32)
