"""`KVStore`: the pages of one virtual stage. Imports MindSpore.

Letters: K KV heads, P blocks, B block size, D head dim, L length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from mindspore import Parameter, Tensor


class LayerPages(NamedTuple):
    """Keys [K * (P+1) * B + 1, D+1] and values [.., D] of one layer: a row per head, block and
    offset. A key's last component is 0; the last row is the key (0, .., 0, 1) with value 0, that
    attention lets stand for what it has seen before.

    Two-dimensional, because on CPU only `ScatterUpdate` along axis 0 writes in place, and any
    reshape of a Parameter copies it; either would cost as much as the pool is large.
    """

    keys: Parameter
    values: Parameter


class KVStore:
    """Pages of some layers, zero at first. Block `null_block` is never owned and stays zero."""

    def __init__(
        self,
        layers: Iterable[int],
        *,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
    ) -> None:
        self.num_blocks, self.block_size, self.null_block = num_blocks, block_size, num_blocks
        self._rows_per_head = (num_blocks + 1) * block_size
        self._first_rows_K1 = np.arange(num_kv_heads)[:, None] * self._rows_per_head
        self.stand_in_row = num_kv_heads * self._rows_per_head
        self._pages = {layer: self._empty(layer, head_dim) for layer in layers}

    def pages(self, layer: int) -> LayerPages:
        return self._pages[layer]

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Page rows [K, *] of slots [*] = block * block_size + offset."""
        return self._first_rows_K1 + slots.reshape(1, -1)

    def read(self, layer: int, blocks: Iterable[int], length: int) -> tuple[np.ndarray, np.ndarray]:
        """(keys, values), each [L, K, D], of the first `length` tokens of a block table."""
        first_slots = np.fromiter(blocks, np.int64) * self.block_size
        slots_L = (first_slots[:, None] + np.arange(self.block_size)).reshape(-1)[:length]
        rows_LK = self.rows(slots_L).T
        keys, values = (pages.asnumpy()[rows_LK] for pages in self._pages[layer])
        return keys[..., :-1], values

    def _empty(self, layer: int, head_dim: int) -> LayerPages:
        keys = np.zeros((self.stand_in_row + 1, head_dim + 1), np.float32)
        keys[-1, -1] = 1
        values = np.zeros((self.stand_in_row + 1, head_dim), np.float32)
        return LayerPages(_parameter(keys, f"keys_{layer}"), _parameter(values, f"values_{layer}"))


def _parameter(array: np.ndarray, name: str) -> Parameter:
    return Parameter(Tensor.from_numpy(array), name=name, requires_grad=False)
