"""`CpuOps`: the CPU op set. Each graph is compiled once, for every shape it meets.

Attention is a loop on the host over the KV tiles of the work list: a call costs 0.2 ms, a
`while` inside a graph hands over between threads at every turn.

Letters: T tokens, H hidden, R sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.kv.store import HeadMajorStore, LayerPages
from vpp_ms.model.ops.base import LayerWeights
from vpp_ms.model.ops.cpu_attention import Attend, Extend, Merge
from vpp_ms.model.ops.cpu_batch import Batch, BatchMaker, Group, float_tensor, index_tensor
from vpp_ms.model.ops.cpu_layers import QKV, Dense, Embed, Head, Router
from vpp_ms.model.ops.cpu_moe import Experts
from vpp_ms.model.ops.graph import Graph, f32, i32
from vpp_ms.model.routing import pack_by_expert
from vpp_ms.model.worklist import WorkList


class CpuOps:
    """The graphs of one model, shared by all its layers and stages in this process."""

    dtype = ms.float32

    def __init__(self, spec: ModelSpec) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        self._spec, self._concat, self._batches = spec, ops.Concat(0), BatchMaker(spec)
        dim, kv_heads = spec.head_dim, spec.num_kv_heads
        x, index = f32(None, spec.hidden_size), i32(None)
        rows, column = f32(None, dim), f32(None, 1)
        zeros, q = f32(None, kv_heads * (dim + 1)), f32(None, dim + 1)
        table = f32(None, dim // 2)
        tile = {False: [i32(None, None)], True: [i32(None, None), f32(None, None, None)]}
        self._embed, self._head = Graph(Embed, index), Graph(lambda: Head(spec), x, index)
        self._qkv = Graph(lambda: QKV(spec), x, table, table, column, column, index, zeros, index)
        self._attend = {
            masked: Graph(partial(Attend, dim, masked), q, *tile[masked]) for masked in tile
        }
        self._extend = {
            masked: Graph(partial(Extend, dim, masked), q, rows, column, *tile[masked])
            for masked in tile
        }
        self._merge = Graph(lambda: Merge(dim), rows, column, rows, column)
        self._dense = Graph(lambda: Dense(spec), x, rows, index)
        self._pinnable = [self._embed, self._head, self._qkv, self._dense]
        if spec.moe is not None:
            self._make_experts(spec, spec.moe, (x, rows, index))

    def _make_experts(
        self, spec: ModelSpec, moe: MoESpec, inputs: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        (x, _, index), top_k = inputs, moe.top_k
        choice = f32(None, top_k), i32(None, None), i32(None, top_k)
        self._router = Graph(lambda: Router(spec, moe), *inputs)
        self._experts = {
            copied: Graph(partial(Experts, copied), x, x, *choice, *[index] * copied)
            for copied in (False, True)
        }
        self._pinnable += [self._router, *self._experts.values()]

    def new_store(self, layers: Iterable[int], num_blocks: int, block_size: int) -> HeadMajorStore:
        return HeadMajorStore(
            layers,
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=self._spec.num_kv_heads,
            head_dim=self._spec.head_dim,
        )

    def is_finite(self, x_TH: Tensor) -> bool:
        return bool(np.isfinite(x_TH.asnumpy()).all())

    def embed(self, ids_T: np.ndarray, table_VH: Parameter) -> Tensor:
        return self._embed(index_tensor(ids_T), table_VH)

    def head(
        self, x_TH: Tensor, samples_R: np.ndarray, norm_1H: Parameter, head_VH: Parameter
    ) -> Tensor:
        return self._head(x_TH, index_tensor(samples_R), norm_1H, head_VH)

    def layer(
        self, kind: str, x_TH: Tensor, batch: Batch, pages: LayerPages, weights: LayerWeights
    ) -> Tensor:
        q = self._qkv(x_TH, *batch.qkv, *pages, *weights.attention)
        if len(batch.groups) == 1:
            attended = self._attention(q, batch.groups[0], pages)
        else:
            parts = [q[g.first_row : g.first_row + g.num_rows] for g in batch.groups]
            attended = self._concat(
                [self._attention(*part, pages) for part in zip(parts, batch.groups, strict=True)]
            )
        if kind == "dense":
            return self._dense(x_TH, attended, batch.rows, *weights.ffn)
        return self._moe(x_TH, attended, batch, weights.ffn)

    def _moe(
        self, x_TH: Tensor, attended: Tensor, batch: Batch, weights: tuple[Parameter, ...]
    ) -> Tensor:
        x_TH, normed, chosen, shares = self._router(x_TH, attended, batch.rows, *weights[:3])
        packing = pack_by_expert(chosen.asnumpy(), weights[2].shape[1])
        packed = [index_tensor(array) for array in packing if array is not None]
        experts = self._experts[packing.experts_n is not None]
        return experts(x_TH, normed, shares, *packed, *weights[3:])

    def _attention(self, q: Tensor, group: Group, pages: LayerPages) -> Tensor:
        first, *others = group.kv_tiles
        state = self._attend[len(first) == 2](q, *first, *pages)
        for tile in others:
            masked = len(tile) == 2
            if group.exact:
                state = self._merge(*state, *self._attend[masked](q, *tile, *pages))
            else:
                state = self._extend[masked](q, *state, *tile, *pages)
        return state[0]

    def batch(
        self,
        work: WorkList,
        store: HeadMajorStore,
        cos_TD: np.ndarray,
        sin_TD: np.ndarray,
        exact: bool = False,
    ) -> Batch:
        return self._batches.make(work, store, cos_TD, sin_TD, exact)

    @contextmanager
    def pinning(self) -> Iterator[None]:
        for graph in self._pinnable:
            graph.pinning = True
        try:
            yield
        finally:
            for graph in self._pinnable:
                graph.pinning = False

    def warm_up(self, kind: str, pages: LayerPages, weights: LayerWeights) -> None:
        """The variants of attention and experts, for one token. Writes nothing."""
        heads, kv_heads, dim = self._spec.num_heads, self._spec.num_kv_heads, self._spec.head_dim
        q = float_tensor(np.zeros((heads, dim + 1)))
        state = float_tensor(np.zeros((heads, dim))), float_tensor(np.zeros((heads, 1)))
        columns = index_tensor(np.zeros((kv_heads, 2)))
        mask = float_tensor(np.zeros((kv_heads, heads // kv_heads, 2)))
        for tile in ((columns,), (columns, mask)):
            masked = len(tile) == 2
            self._extend[masked](q, *state, *tile, *pages)
            self._merge(*state, *self._attend[masked](q, *tile, *pages))
        if kind == "moe" and self._spec.moe is not None:
            num_experts, top_k = weights.ffn[2].shape[1], self._spec.moe.top_k
            x = float_tensor(np.zeros((1, self._spec.hidden_size)))
            shares = float_tensor(np.zeros((1, top_k)))
            for copied, tiles in ((True, 1), (False, num_experts)):
                packed = [index_tensor(np.zeros(shape)) for shape in ((tiles, 1), (1, top_k))]
                packed += [index_tensor(np.zeros(1))] * copied
                self._experts[copied](x, x, shares, *packed, *weights.ffn[3:])
