"""The pages of one virtual stage, in the layout its device's kernels want. Imports MindSpore.

Letters: K KV heads, P blocks, B block size, D head dim, L length. A slot is block * B + offset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor


class LayerPages(NamedTuple):
    """Two-dimensional, because on CPU only `ScatterUpdate` along axis 0 writes in place, and any
    reshape of a Parameter copies it; either would cost as much as the pool is large."""

    keys: Parameter
    values: Parameter


class KVStore(ABC):
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
        self.block_size, self.null_block = block_size, num_blocks
        self.num_slots = (num_blocks + 1) * block_size
        self.num_kv_heads, self.head_dim = num_kv_heads, head_dim
        self._pages = {layer: self._empty(layer) for layer in layers}

    def pages(self, layer: int) -> LayerPages:
        return self._pages[layer]

    def read(self, layer: int, blocks: Iterable[int], length: int) -> tuple[np.ndarray, np.ndarray]:
        """(keys, values), each [L, K, D], of the first `length` tokens of a block table."""
        first_slots = np.fromiter(blocks, np.int64) * self.block_size
        slots_L = (first_slots[:, None] + np.arange(self.block_size)).reshape(-1)[:length]
        return self._pick(self._pages[layer], slots_L)

    @abstractmethod
    def _empty(self, layer: int) -> LayerPages: ...

    @abstractmethod
    def _pick(self, pages: LayerPages, slots_L: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class HeadMajorStore(KVStore):
    """Keys [K * (P+1) * B + 1, D+1], values [.., D]: a row per head and slot.

    A key's last component is 0; the last row is the key (0, .., 0, 1) with value 0, which
    attention lets stand for all that it has seen before.
    """

    @property
    def stand_in_row(self) -> int:
        return self.num_kv_heads * self.num_slots

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Page rows [K, *] of slots [*]."""
        return np.arange(self.num_kv_heads)[:, None] * self.num_slots + slots.reshape(1, -1)

    def _empty(self, layer: int) -> LayerPages:
        keys = np.zeros((self.stand_in_row + 1, self.head_dim + 1), np.float32)
        keys[-1, -1] = 1
        values = np.zeros((self.stand_in_row + 1, self.head_dim), np.float32)
        return _pages(keys, values, layer, ms.float32)

    def _pick(self, pages: LayerPages, slots_L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows_LK = self.rows(slots_L).T
        return pages.keys.asnumpy()[rows_LK][..., :-1], pages.values.asnumpy()[rows_LK]


class TokenMajorStore(KVStore):
    """Keys and values [(P+1) * B, K * D], bfloat16: a row per slot."""

    def _empty(self, layer: int) -> LayerPages:
        zeros = np.zeros((self.num_slots, self.num_kv_heads * self.head_dim), np.float32)
        return _pages(zeros, zeros, layer, ms.bfloat16)

    def _pick(self, pages: LayerPages, slots_L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = (-1, self.num_kv_heads, self.head_dim)
        keys, values = (page.float().asnumpy()[slots_L].reshape(shape) for page in pages)
        return keys, values


def _pages(keys: np.ndarray, values: np.ndarray, layer: int, dtype: ms.Type) -> LayerPages:
    def parameter(array: np.ndarray, kind: str) -> Parameter:
        tensor = Tensor.from_numpy(array)
        tensor = tensor if dtype == ms.float32 else tensor.astype(dtype)
        return Parameter(tensor, name=f"{kind}_{layer}", requires_grad=False)

    return LayerPages(parameter(keys, "keys"), parameter(values, "values"))
