"""`WorkList`: one micro-batch as index arrays, made on the host once and used by every layer.

Queries are cut into tiles of R rows, and tiles into groups of P that are computed together; a
group walks over KV tiles of C columns (whole blocks). Work is proportional to the pairs (query,
key) that attend, memory is constant in the prefix, and a decode token costs one row.

Letters: T tokens, Z zeroed slots, B block size, P tiles of a group, R rows and C columns of a
tile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vpp_ms.schedule.actions import Segment

NEVER = np.int32(2**31 - 1)  # the position of a column that no query may see


@dataclass(frozen=True)
class TileLimits:
    """`scores` are held at once, over all heads; up to `masked` of them are masked where they
    need not be, to save a tile; a tile of `solo_rows` is a group of its own."""

    rows: int = 512
    columns: int = 16384
    scores: int = 1 << 24
    masked: int = 1 << 18
    solo_rows: int = 32


DEFAULT_LIMITS = TileLimits()


@dataclass(frozen=True)
class KVTile:
    """The same columns of P block tables: their slots in the KV pool, their positions, and
    whether any must be hidden from any of the rows."""

    slots_PC: np.ndarray
    positions_PC: np.ndarray
    masked: bool


@dataclass(frozen=True)
class TileGroup:
    """P query tiles: token of each row, its position, and the KV tiles to walk over."""

    tokens_PR: np.ndarray
    positions_PR: np.ndarray
    kv_tiles: tuple[KVTile, ...]

    @property
    def is_real(self) -> np.ndarray:
        """bool [P, R]: a token's row, not padding."""
        return self.positions_PR != NEVER


@dataclass(frozen=True)
class WorkList:
    """A slot is block * B + offset. `write_slots`: of the T tokens, then Z slots to be zeroed.

    Zeroed are the slots behind a segment's end in a block it has just entered, so that stale
    values are never read, not even masked. `samples_R`: tokens whose logits are wanted.
    """

    segments: tuple[Segment, ...]
    positions_T: np.ndarray
    write_slots: np.ndarray
    num_zeroed: int
    groups: tuple[TileGroup, ...]
    samples_R: np.ndarray


@dataclass(frozen=True)
class _QueryTile:
    first_token: int
    start: int
    length: int
    blocks: np.ndarray

    @property
    def end(self) -> int:
        return self.start + self.length


class WorkPlanner:
    """Cuts micro-batches for a stage with `num_heads` query heads and blocks of `block_size`.

    `null_block` is a block of zeros that no request owns. With a sliding `window` a query sees
    its own key and the window - 1 before it.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        block_size: int,
        null_block: int,
        window: int | None = None,
        limits: TileLimits = DEFAULT_LIMITS,
    ) -> None:
        self._num_heads, self._block_size = num_heads, block_size
        self._null_block, self._window, self._limits = null_block, window, limits

    def plan(self, segments: Sequence[Segment]) -> WorkList:
        lengths = np.array([s.length for s in segments])
        ends = np.cumsum(lengths)
        positions_T = np.concatenate([np.arange(s.start, s.start + s.length) for s in segments])
        write_slots, num_zeroed = self._write_slots(segments)
        tiles = [
            tile
            for s, end in zip(segments, ends, strict=True)
            for tile in _cut(s, end, self._limits.rows)
        ]
        groups = tuple(self._group(members) for members in self._bucket(tiles))
        return WorkList(
            tuple(segments),
            positions_T,
            write_slots,
            num_zeroed,
            groups,
            np.array([e - 1 for s, e in zip(segments, ends, strict=True) if s.sample], np.int32),
        )

    def _write_slots(self, segments: Sequence[Segment]) -> tuple[np.ndarray, int]:
        size, tokens = self._block_size, []
        zeroed = [np.array([self._null_block * size])]
        for s in segments:
            end, blocks = s.start + s.length, np.asarray(s.blocks)
            tokens.append(_slots(np.arange(s.start, end), blocks, size))
            last_block_start = (end - 1) // size * size
            if last_block_start >= s.start:
                zeroed.append(_slots(np.arange(end, last_block_start + size), blocks, size))
        return np.concatenate(tokens + zeroed), sum(map(len, zeroed))

    def _bucket(self, tiles: Sequence[_QueryTile]) -> list[list[_QueryTile]]:
        """Long tiles alone; short ones with others of about the same rows and columns."""
        buckets: dict[tuple[int, int], list[_QueryTile]] = defaultdict(list)
        groups: list[list[_QueryTile]] = []
        for tile in tiles:
            if tile.length >= self._limits.solo_rows:
                groups.append([tile])
            else:
                buckets[tile.length.bit_length(), (tile.end - 1).bit_length()].append(tile)
        return groups + list(buckets.values())

    def _group(self, tiles: Sequence[_QueryTile]) -> TileGroup:
        rows = max(tile.length for tile in tiles)
        tokens_PR = np.zeros((len(tiles), rows), np.int32)
        positions_PR = np.full((len(tiles), rows), NEVER, np.int32)
        for p, tile in enumerate(tiles):
            span = np.arange(tile.length)
            tokens_PR[p, : tile.length] = tile.first_token + span
            positions_PR[p, : tile.length] = tile.start + span
        return TileGroup(tokens_PR, positions_PR, self._kv_tiles(tiles, positions_PR))

    def _kv_tiles(
        self, tiles: Sequence[_QueryTile], positions_PR: np.ndarray
    ) -> tuple[KVTile, ...]:
        """Without a window every row sees something of the first tile.

        Only what lies about the diagonal is masked: a long prefix has tiles of its own, behind.
        """
        limits, size = self._limits, self._block_size
        scores_per_column = positions_PR.size * self._num_heads
        first, last = 0, max(-(-tile.end // size) for tile in tiles)
        if self._window is not None:
            first = max(0, min(tile.start for tile in tiles) + 1 - self._window) // size
        widest = max(1, min(limits.columns, limits.scores // scores_per_column) // size)
        whole = first
        if len(tiles) == 1 and (last - first) * size * scores_per_column > limits.masked:
            whole = max(first, tiles[0].start // size)
        spans = _even_spans(whole, last, widest) + _even_spans(first, whole, widest)
        return tuple(self._kv_tile(tiles, positions_PR, *span) for span in spans)

    def _kv_tile(
        self, tiles: Sequence[_QueryTile], positions_PR: np.ndarray, first: int, last: int
    ) -> KVTile:
        size = self._block_size
        columns = np.arange(first * size, last * size)
        slots_PC = np.full((len(tiles), len(columns)), self._null_block * size)
        positions_PC = np.full(slots_PC.shape, NEVER)
        for p, tile in enumerate(tiles):
            own = columns[columns < -(-tile.end // size) * size]
            slots_PC[p, : len(own)] = _slots(own, tile.blocks, size)
            positions_PC[p, : len(own)] = own
        masked = positions_PC.max() > positions_PR.min()
        if self._window is not None:
            masked |= positions_PC.min() <= positions_PR.max() - self._window
        return KVTile(slots_PC, positions_PC, bool(masked))


def _cut(segment: Segment, end_token: int, max_rows: int) -> list[_QueryTile]:
    first = end_token - segment.length
    blocks = np.asarray(segment.blocks, np.int32)
    return [
        _QueryTile(first + done, segment.start + done, min(max_rows, segment.length - done), blocks)
        for done in range(0, segment.length, max_rows)
    ]


def _slots(positions: np.ndarray, blocks: np.ndarray, block_size: int) -> np.ndarray:
    return blocks[positions // block_size] * block_size + positions % block_size


def _even_spans(first: int, last: int, widest: int) -> list[tuple[int, int]]:
    """[first, last) in as few spans of at most `widest` as it takes, all about the same."""
    count = -(-(last - first) // widest)
    bounds = [first + (last - first) * i // max(count, 1) for i in range(count + 1)]
    return list(pairwise(bounds))
