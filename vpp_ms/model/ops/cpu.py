"""`CpuOps`: the CPU op set. Each graph is compiled once, for every shape it meets.

Attention is a loop on the host over the KV tiles of the work list: a call costs 0.2 ms, a
`while` inside a graph hands over between threads at every turn.

Letters: T tokens, N query heads, K KV heads, G = N/K, D head dim, P tiles of a group, R rows and
C columns of a tile, Z zeroed slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.kv.store import KVStore, LayerPages
from vpp_ms.model.ops.base import LayerWeights
from vpp_ms.model.ops.cpu_attention import Attend, Extend, Merge
from vpp_ms.model.ops.cpu_layers import QKV, Dense, Embed, Head, Router
from vpp_ms.model.ops.cpu_moe import Experts
from vpp_ms.model.routing import pack_by_expert
from vpp_ms.model.worklist import KVTile, TileGroup, WorkList

MASKED = np.float32(-1e30)  # finite, so that a tile masked as a whole merges as the identity


class Graph:
    """A cell compiled at its first call, with `inputs` as the shapes of its tensor arguments;
    the arguments behind these are Parameters."""

    def __init__(self, cell: nn.Cell, *inputs: Tensor) -> None:
        self._cell, self._inputs = cell, inputs
        self._compiled = False

    def __call__(self, *args: Tensor) -> Any:
        if not self._compiled:
            self._cell.set_inputs(*self._inputs, *args[len(self._inputs) :])
            self._compiled = True
        return self._cell(*args)


class Group(NamedTuple):
    """Where a group's rows lie in the queries; each KV tile is (columns,) or (columns, mask)."""

    first_row: int
    num_rows: int
    kv_tiles: tuple[tuple[Tensor, ...], ...]
    exact: bool


class Batch(NamedTuple):
    """A work list on the device: what `QKV` needs, and where token t's outputs lie."""

    qkv: tuple[Tensor, ...]
    rows: Tensor
    groups: tuple[Group, ...]


class CpuOps:
    """The graphs of one model, shared by all its layers and stages in this process."""

    def __init__(self, spec: ModelSpec) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        self._heads, self._kv_heads, self._dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self._window = spec.sliding_window
        self._concat = ops.Concat(0)
        rows, column, mask = _f32(None, self._dim), _f32(None, 1), _f32(None, None, None)
        padded = _f32(None, self._dim + 1)
        x, index, columns = _f32(None, spec.hidden_size), _i32(None), _i32(None, None)
        zeros = _f32(None, self._kv_heads * (self._dim + 1))
        self._embed, self._head = Graph(Embed(), index), Graph(Head(spec), x, index)
        self._qkv = Graph(QKV(spec), x, rows, rows, column, column, index, zeros, index)
        self._attend = {
            masked: Graph(Attend(self._dim, masked), padded, columns, *[mask] * masked)
            for masked in (False, True)
        }
        self._extend = {
            masked: Graph(
                Extend(self._dim, masked), padded, rows, column, columns, *[mask] * masked
            )
            for masked in (False, True)
        }
        self._merge = Graph(Merge(self._dim), rows, column, rows, column)
        self._dense = Graph(Dense(spec), x, rows, index)
        if spec.moe is not None:
            self._num_experts, self._top_k = spec.moe.num_experts, spec.moe.top_k
            self._router = Graph(Router(spec, spec.moe), x, rows, index)
            choice = _f32(None, self._top_k), _i32(None, None), _i32(None, self._top_k)
            self._experts = {
                copied: Graph(Experts(copied), x, x, *choice, *[index] * copied)
                for copied in (False, True)
            }

    def embed(self, ids_T: np.ndarray, table_VH: Parameter) -> Tensor:
        return self._embed(_index(ids_T), table_VH)

    def head(
        self, x_TH: Tensor, samples_R: np.ndarray, norm_1H: Parameter, head_VH: Parameter
    ) -> Tensor:
        return self._head(x_TH, _index(samples_R), norm_1H, head_VH)

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
        packing = pack_by_expert(chosen.asnumpy(), self._num_experts)
        packed = [_index(array) for array in packing if array is not None]
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
        store: KVStore,
        cos_TD: np.ndarray,
        sin_TD: np.ndarray,
        exact: bool = False,
    ) -> Batch:
        heads = np.arange(self._kv_heads)
        queries = [
            (g.tokens_PR.reshape(1, -1) * self._kv_heads + heads[:, None]).ravel()
            for g in work.groups
        ]
        num_tokens, all_heads = len(cos_TD), self._heads + self._kv_heads
        return Batch(
            (
                *(self._rotary(table_TD) for table_TD in (cos_TD, sin_TD)),
                _float(np.zeros((num_tokens * all_heads, 1))),
                _float(np.ones((num_tokens, 1))),
                _index(store.rows(work.write_slots).T.reshape(-1)),
                _float(np.zeros((work.num_zeroed, self._kv_heads * (self._dim + 1)))),
                _index(np.concatenate(queries)),
            ),
            _index(self._rows_of_queries(work)),
            tuple(self._groups(work.groups, store, exact or self._window is not None)),
        )

    def warm_up(self, kind: str, pages: LayerPages, weights: LayerWeights) -> None:
        """The variants of attention and experts, for one token. Writes nothing."""
        q = _float(np.zeros((self._heads, self._dim + 1)))
        state = _float(np.zeros((self._heads, self._dim))), _float(np.zeros((self._heads, 1)))
        columns = _index(np.zeros((self._kv_heads, 2)))
        mask = _float(np.zeros((self._kv_heads, self._heads // self._kv_heads, 2)))
        for tile in ((columns,), (columns, mask)):
            masked = len(tile) == 2
            self._extend[masked](q, *state, *tile, *pages)
            self._merge(*state, *self._attend[masked](q, *tile, *pages))
        if kind == "moe":
            hidden, chosen = weights.ffn[2].shape[0], self._top_k
            x, shares = _float(np.zeros((1, hidden))), _float(np.zeros((1, chosen)))
            rows = _index(np.zeros((1, chosen)))
            for copied, tiles in ((True, 1), (False, self._num_experts)):
                packed = _index(np.zeros((tiles, 1))), rows, *[_index(np.zeros(1))] * copied
                self._experts[copied](x, x, shares, *packed, *weights.ffn[3:])

    def _rotary(self, table_TD: np.ndarray) -> Tensor:
        """A row for each token's N query and K KV heads; the queries' carry the score scale."""
        heads = np.ones((1, self._heads + self._kv_heads, 1), np.float32)
        heads[:, : self._heads] = self._dim**-0.5
        return _float((table_TD[:, None] * heads).reshape(-1, self._dim))

    def _rows_of_queries(self, work: WorkList) -> np.ndarray:
        """[T*K]: where (t, k) lies in the queries, which are ordered (group, k, p, r)."""
        rows_TK = np.empty((len(work.positions_T), self._kv_heads), np.int32)
        base = 0
        for group in work.groups:
            size = group.tokens_PR.size
            real = np.flatnonzero(group.is_real)
            tokens = group.tokens_PR.reshape(-1)[real]
            rows_TK[tokens] = base + real[:, None] + np.arange(self._kv_heads) * size
            base += size * self._kv_heads
        return rows_TK.reshape(-1)

    def _groups(self, groups: Sequence[TileGroup], store: KVStore, exact: bool) -> list[Group]:
        found, first_row = [], 0
        for group in groups:
            num_rows = group.tokens_PR.size * self._heads
            tiles = tuple(
                self._tile(group, tile, store, stand_in=not exact and index > 0)
                for index, tile in enumerate(group.kv_tiles)
            )
            found.append(Group(first_row, num_rows, tiles, exact))
            first_row += num_rows
        return found

    def _tile(
        self, group: TileGroup, tile: KVTile, store: KVStore, stand_in: bool
    ) -> tuple[Tensor, ...]:
        """(columns [K*P, C], and if masked the mask [K*P, R*G, C]); with the stand-in last."""
        tiles, num_columns = tile.slots_PC.shape
        columns = store.rows(tile.slots_PC).reshape(self._kv_heads * tiles, num_columns)
        if stand_in:
            columns = np.pad(columns, ((0, 0), (0, 1)), constant_values=store.stand_in_row)
        if not tile.masked:
            return (_index(columns),)
        return _index(columns), self._mask(group, tile, stand_in)

    def _mask(self, group: TileGroup, tile: KVTile, stand_in: bool) -> Tensor:
        """What is added to the scores: 0 where the row may see the column."""
        rows, columns = group.positions_PR[:, :, None], tile.positions_PC[:, None]
        hidden = columns > rows
        if self._window is not None:
            hidden |= columns <= rows - self._window
        mask = np.where(hidden, MASKED, np.float32(0))
        if stand_in:
            mask = np.pad(mask, ((0, 0), (0, 0), (0, 1)))
        mask = np.repeat(mask, self._heads // self._kv_heads, axis=1)
        return _float(np.tile(mask, (self._kv_heads, 1, 1)))


def _f32(*shape: int | None) -> Tensor:
    """A placeholder for `set_inputs`: None is any length."""
    return Tensor(shape=list(shape), dtype=ms.float32)


def _i32(*shape: int | None) -> Tensor:
    return Tensor(shape=list(shape), dtype=ms.int32)


def _index(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.int32))


def _float(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.float32))
