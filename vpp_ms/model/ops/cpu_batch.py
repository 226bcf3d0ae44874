"""A work list as tensors, once for all layers of a micro-batch: tables, indices and masks.

Letters: T tokens, N query heads, K KV heads, G = N/K, D head dim, P tiles of a group, R rows and
C columns of a tile, Z zeroed slots. Token t's queries for KV head k are one row (t, k).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mindspore import Tensor

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.kv.store import HeadMajorStore
from vpp_ms.model.worklist import NEVER, KVTile, TileGroup, WorkList

MASKED = np.float32(-1e30)  # finite, so that a tile masked as a whole merges as the identity
NUM_MASKS = 4  # kept; a prompt in chunks of one size needs one


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


class BatchMaker:
    """Makes `Batch`es for one model."""

    def __init__(self, spec: ModelSpec) -> None:
        self._heads, self._kv_heads, self._dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self._window = spec.sliding_window
        self._masks: OrderedDict[tuple, Tensor] = OrderedDict()

    def make(
        self,
        work: WorkList,
        store: HeadMajorStore,
        cos_TD: np.ndarray,
        sin_TD: np.ndarray,
        exact: bool,
    ) -> Batch:
        num_tokens, all_heads = len(cos_TD), self._heads + self._kv_heads
        half = self._dim // 2
        heads = np.arange(self._heads).reshape(self._kv_heads, 1, -1)
        queries = [(g.tokens_PR.reshape(-1, 1) * all_heads + heads).ravel() for g in work.groups]
        return Batch(
            (
                self._rotary(cos_TD[:, half:]),
                self._rotary(sin_TD[:, half:]),
                float_tensor(np.zeros((num_tokens * all_heads, 1))),
                float_tensor(np.ones((num_tokens, 1))),
                index_tensor(store.rows(work.write_slots).T.reshape(-1)),
                float_tensor(np.zeros((work.num_zeroed, self._kv_heads * (self._dim + 1)))),
                index_tensor(np.concatenate(queries)),
            ),
            index_tensor(self._rows_of_queries(work)),
            tuple(self._groups(work.groups, store, exact or self._window is not None)),
        )

    def _rotary(self, table: np.ndarray) -> Tensor:
        """A row for each token's N query and K KV heads; the queries' carry the score scale."""
        heads = np.ones((1, self._heads + self._kv_heads, 1), np.float32)
        heads[:, : self._heads] = self._dim**-0.5
        return float_tensor((table[:, None] * heads).reshape(-1, table.shape[1]))

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

    def _groups(
        self, groups: Sequence[TileGroup], store: HeadMajorStore, exact: bool
    ) -> list[Group]:
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
        self, group: TileGroup, tile: KVTile, store: HeadMajorStore, stand_in: bool
    ) -> tuple[Tensor, ...]:
        """(columns [K*P, C], and if masked the mask [K*P, R*G, C]); with the stand-in last."""
        tiles, num_columns = tile.slots_PC.shape
        columns = store.rows(tile.slots_PC).reshape(self._kv_heads * tiles, num_columns)
        if stand_in:
            columns = np.pad(columns, ((0, 0), (0, 1)), constant_values=store.stand_in_row)
        if not tile.masked:
            return (index_tensor(columns),)
        return index_tensor(columns), self._mask(group, tile, stand_in)

    def _mask(self, group: TileGroup, tile: KVTile, stand_in: bool) -> Tensor:
        """What is added to the scores: 0 where the row may see the column.

        It depends on distances alone, so that all stages and most chunks share one: making it, and
        MindSpore's copy of it, costs a millisecond or two.
        """
        first = tile.positions_PC.min()
        rows, columns = _from(group.positions_PR, first), _from(tile.positions_PC, first)
        key = rows.tobytes(), columns.tobytes(), columns.shape, stand_in
        if key not in self._masks:
            self._masks[key] = self._new_mask(rows[:, :, None], columns[:, None], stand_in)
            if len(self._masks) > NUM_MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(key)
        return self._masks[key]

    def _new_mask(self, rows: np.ndarray, columns: np.ndarray, stand_in: bool) -> Tensor:
        """[K*P, R*G, C] from positions [P, R, 1] and [P, 1, C]."""
        hidden = columns > rows
        if self._window is not None:
            hidden |= columns <= rows - self._window
        mask = np.where(hidden, MASKED, np.float32(0))
        if stand_in:
            mask = np.pad(mask, ((0, 0), (0, 0), (0, 1)))
        mask = np.repeat(mask, self._heads // self._kv_heads, axis=1)
        return float_tensor(np.tile(mask, (self._kv_heads, 1, 1)))


def _from(positions: np.ndarray, first: int) -> np.ndarray:
    """Counted from `first`; what is never seen stays so."""
    return np.where(positions == NEVER, NEVER, positions - first)


def index_tensor(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.int32))


def float_tensor(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.float32))
