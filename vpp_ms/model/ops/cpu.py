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
from vpp_ms.model.ops.cpu_layers import QKV, Attend, Dense, Embed, Head, Router
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
    """Where a group's rows lie in the queries, and for each KV tile (columns, mask or None)."""

    first_row: int
    num_rows: int
    kv_tiles: tuple[tuple[Tensor, Tensor | None], ...]


class Batch(NamedTuple):
    """A work list on the device: what `QKV` needs, and where token t's outputs lie."""

    qkv: tuple[Tensor, ...]
    rows: Tensor
    groups: tuple[Group, ...]
    samples_R: Tensor | None


class CpuOps:
    """The graphs of one model, shared by all its layers and stages in this process."""

    def __init__(self, spec: ModelSpec) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        self._heads, self._kv_heads, self._dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self._window = spec.sliding_window
        self._concat = ops.Concat(0)
        rows, column, mask = _f32(None, self._dim), _f32(None, 1), _f32(None, None, None)
        x, index, columns = _f32(None, spec.hidden_size), _i32(None), _i32(None, None)
        zeros = _f32(None, self._kv_heads * self._dim)
        self._embed, self._head = Graph(Embed(), index), Graph(Head(spec), x, index)
        self._qkv = Graph(QKV(spec), x, rows, rows, column, index, zeros, index)
        self._attend = {
            (masked, merge): Graph(
                Attend(spec, masked, merge),
                rows,
                columns,
                *[mask] * masked,
                *[rows, column] * merge,
            )
            for masked in (False, True)
            for merge in (False, True)
        }
        self._dense = Graph(Dense(spec), x, rows, index)
        self._num_experts = 0
        if spec.moe is not None:
            self._num_experts, chosen = spec.moe.num_experts, spec.moe.top_k
            self._router = Graph(Router(spec, spec.moe), x, rows, index)
            self._experts = Graph(
                Experts(),
                x,
                x,
                _f32(None, chosen),
                _i32(self._num_experts, None),
                _i32(None, chosen),
            )

    def embed(self, ids_T: np.ndarray, table_VH: Parameter) -> Tensor:
        return self._embed(_index(ids_T), table_VH)

    def head(self, x_TH: Tensor, batch: Batch, norm_1H: Parameter, head_VH: Parameter) -> Tensor:
        return self._head(x_TH, batch.samples_R, norm_1H, head_VH)

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
        x_TH, normed, experts, shares = self._router(x_TH, attended, batch.rows, *weights[:3])
        tokens_Ec, rows_TJ = pack_by_expert(experts.asnumpy(), self._num_experts)
        packed = _index(tokens_Ec), _index(rows_TJ)
        return self._experts(x_TH, normed, shares, *packed, *weights[3:])

    def _attention(self, q: Tensor, group: Group, pages: LayerPages) -> Tensor:
        state: tuple[Tensor, ...] = ()
        for columns, mask in group.kv_tiles:
            extra = state if mask is None else (mask, *state)
            attend = self._attend[mask is not None, bool(state)]
            state = attend(q, columns, *extra, *pages)
        return state[0]

    def batch(
        self, work: WorkList, store: KVStore, cos_TD: np.ndarray, sin_TD: np.ndarray
    ) -> Batch:
        heads = np.arange(self._kv_heads)
        zeros = np.zeros((work.num_zeroed, self._kv_heads * self._dim))
        queries = [
            (g.tokens_PR.reshape(1, -1) * self._kv_heads + heads[:, None]).ravel()
            for g in work.groups
        ]
        return Batch(
            (
                *(self._rotary(table_TD) for table_TD in (cos_TD, sin_TD)),
                _float(np.ones((len(cos_TD), 1))),
                _index(store.rows(work.write_slots).T.reshape(-1)),
                _float(zeros),
                _index(np.concatenate(queries)),
            ),
            _index(self._rows_of_queries(work)),
            tuple(self._groups(work.groups, store)),
            _index(work.samples_R) if work.samples_R.size else None,
        )

    def warm_up(self, pages: LayerPages) -> None:
        """Compile the attention variants that a first short prompt would not meet."""
        rows = self._heads  # of one token
        q, lse = _float(np.zeros((rows, self._dim))), _float(np.zeros((rows, 1)))
        mask = _float(np.zeros((self._kv_heads, rows // self._kv_heads, 1)))
        columns = _index(np.zeros((self._kv_heads, 1)))
        for (masked, merge), attend in self._attend.items():
            attend(q, columns, *[mask] * masked, *[q, lse] * merge, *pages)

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

    def _groups(self, groups: Sequence[TileGroup], store: KVStore) -> list[Group]:
        found, first_row = [], 0
        for group in groups:
            num_rows = group.tokens_PR.size * self._heads
            tiles = tuple(
                (_index(self._columns(tile, store)), self._mask(group, tile))
                for tile in group.kv_tiles
            )
            found.append(Group(first_row, num_rows, tiles))
            first_row += num_rows
        return found

    def _columns(self, tile: KVTile, store: KVStore) -> np.ndarray:
        tiles, num_columns = tile.slots_PC.shape
        return store.rows(tile.slots_PC).reshape(self._kv_heads * tiles, num_columns)

    def _mask(self, group: TileGroup, tile: KVTile) -> Tensor | None:
        """What is added to the scores, [K*P, R*G, C]: 0 where the row may see the column."""
        if not tile.masked:
            return None
        rows, columns = group.positions_PR, tile.positions_PC
        hidden = columns[:, None] > rows[:, :, None]
        if self._window is not None:
            hidden |= columns[:, None] <= rows[:, :, None] - self._window
        tiles, num_rows, num_columns = hidden.shape
        queries = self._heads // self._kv_heads
        shape = (self._kv_heads, tiles, num_rows, queries, num_columns)
        mask = np.broadcast_to(np.where(hidden, MASKED, 0)[None, :, :, None], shape)
        return _float(mask.reshape(self._kv_heads * tiles, num_rows * queries, num_columns))


def _f32(*shape: int | None) -> Tensor:
    """A placeholder for `set_inputs`: None is any length."""
    return Tensor(shape=list(shape), dtype=ms.float32)


def _i32(*shape: int | None) -> Tensor:
    return Tensor(shape=list(shape), dtype=ms.int32)


def _index(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.int32))


def _float(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.float32))
