"""`BlockPool`: which KV blocks belong to which request. Pure accounting, no tensors."""

from __future__ import annotations

from vpp_ms.errors import RequestError


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens each, handed out lowest free id first.

    A request's table only grows until it is freed; table entry i holds the tokens
    [i * block_size, (i + 1) * block_size).
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        assert num_blocks >= 1 and block_size >= 1, (num_blocks, block_size)
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._tables: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def check(self, request: int, num_tokens: int) -> None:
        """Raises RequestError when the tokens would not fit into an empty pool either."""
        if self.blocks_for(num_tokens) > self.num_blocks:
            capacity = self.num_blocks * self.block_size
            raise RequestError(
                f"request {request}",
                f"{num_tokens} tokens of KV cache",
                allowed=f"<= {capacity} ({self.num_blocks} blocks of {self.block_size})",
                hint="a larger kv.num_blocks or a shorter prompt",
            )

    def allocate(self, request: int, num_tokens: int) -> tuple[int, ...] | None:
        """The request's table, grown to hold `num_tokens` tokens; None if it does not fit now.

        All or nothing: where the answer is None nothing has changed.
        Raises RequestError when the tokens would not fit into an empty pool either.
        """
        self.check(request, num_tokens)
        missing = self.blocks_for(num_tokens) - len(self._tables.get(request, ()))
        if missing > len(self._free):
            return None
        table = self._tables.setdefault(request, [])
        table.extend(self._free.pop() for _ in range(missing))
        return tuple(table)

    def table(self, request: int) -> tuple[int, ...]:
        """The blocks a request holds; () for a request that holds none."""
        return tuple(self._tables.get(request, ()))

    def free(self, request: int) -> None:
        """Give the request's blocks back; a request that holds none is no error."""
        self._free.extend(reversed(self._tables.pop(request, [])))
