"""`OpSet`: how the parts of a decoder are computed on one kind of device.

Letters: T tokens, H hidden, N query heads, K KV heads, D head dim, F FFN width, E experts,
R sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from vpp_ms.kv.store import KVStore, LayerPages
from vpp_ms.model.worklist import WorkList


class LayerWeights(NamedTuple):
    """Matrices are [in, out], vectors [1, width].

    attention: attn_norm [1, H], qkv [H, (N+2K)*D]; then qkv_bias [1, (N+2K)*D] and qk_norm
    [1, (N+K)*D] (by head) where the model has them. ffn: o [N*D, H], ffn_norm [1, H], then dense
    gate, up [H, F], down [F, H]; or router [H, E], gate, up [E, H, F], down [E, F, H].
    """

    attention: tuple[Parameter, ...]
    ffn: tuple[Parameter, ...]


class OpSet(Protocol):
    """`Batch` is what the op set makes of a work list, once for all layers of a micro-batch.

    `dtype` is that of weights, pages and hidden states.
    """

    dtype: ms.Type

    def new_store(self, layers: Iterable[int], num_blocks: int, block_size: int) -> KVStore:
        """Empty pages in the layout that `layer` reads and writes."""

    def is_finite(self, x_TH: Tensor) -> bool:
        """False asks for the micro-batch to be computed again, exactly."""

    def batch(
        self,
        work: WorkList,
        store: Any,
        cos_TD: np.ndarray,
        sin_TD: np.ndarray,
        exact: bool = False,
    ) -> Any:
        """`exact`: by kernels for any scores, where the fast ones may have overflown."""

    def embed(self, ids_T: np.ndarray, table_VH: Parameter) -> Tensor:
        """[T, H]"""

    def layer(
        self, kind: str, x_TH: Tensor, batch: Any, pages: LayerPages, weights: LayerWeights
    ) -> Tensor:
        """One decoder layer of this kind ("dense" or "moe"): writes K and V, returns [T, H]."""

    def head(
        self, x_TH: Tensor, samples_R: np.ndarray, norm_1H: Parameter, head_VH: Parameter
    ) -> Tensor:
        """float32 [R, V]"""

    def warm_up(self, kind: str, pages: LayerPages, weights: LayerWeights) -> None:
        """Compile what a first short prompt would not meet in such a layer. Writes nothing."""

    def pinning(self) -> AbstractContextManager[None]:
        """Micro-batches of the shape of those run meanwhile will be quick."""
