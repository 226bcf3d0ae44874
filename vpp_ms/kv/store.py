"""`KVStore`: the pages of one virtual stage. Imports MindSpore.

Letters: K KV heads, P blocks, B block size, D head dim, L length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor


class LayerPages(NamedTuple):
    """Keys and values of one layer, each [K, P + 1, B, D], heads first: a head's block is one
    run of memory, and a gather of blocks is a copy of such runs."""

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
        shape = (num_kv_heads, num_blocks + 1, block_size, head_dim)
        self._pages = {
            layer: LayerPages(*(_zeros(shape, f"{kind}_{layer}") for kind in ("keys", "values")))
            for layer in layers
        }

    def pages(self, layer: int) -> LayerPages:
        return self._pages[layer]

    def read(self, layer: int, blocks: Iterable[int], length: int) -> tuple[np.ndarray, np.ndarray]:
        """(keys, values), each [L, K, D], of the first `length` tokens of a block table."""
        table = list(blocks)
        found = []
        for pages in self._pages[layer]:
            picked = pages.asnumpy()[:, table]
            tokens_first = picked.reshape(picked.shape[0], -1, picked.shape[-1]).swapaxes(0, 1)
            found.append(tokens_first[:length].copy())
        return found[0], found[1]


def _zeros(shape: tuple[int, ...], name: str) -> Parameter:
    return Parameter(
        Tensor(np.zeros(shape, np.float32), ms.float32), name=name, requires_grad=False
    )
