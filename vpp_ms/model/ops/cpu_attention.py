"""Attention of a group of query tiles, one KV tile after the other, on CPU.

Softmax over a tile is the one fast exponential here; sums over scores are slow. So tiles are
merged without them: `Attend` computes a tile and its rows' log-sum-exp, and for `Extend` all that
was seen before is one more key, whose score is that log-sum-exp and whose value is the output so
far. The score comes out of the same matmul: queries and keys have one more component, zero but
in that key (1) and in the query that meets it (the log-sum-exp).

`Extend` underflows where a later tile's scores exceed all before by 87: the log-sum-exp becomes
infinite and the next tile's output NaN. `Merge` of two attended tiles has no such limit, at a
sixth of the speed of attention; it is for the micro-batch that came out NaN, and for sliding
windows, in which a row may see nothing of a tile.

Letters: K KV heads, G query heads per KV head, D head dim, P tiles of a group, R rows and C
columns of a tile, M = K*P*R*G.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops


class Attend(nn.Cell):
    """One KV tile by itself: (output [M, D], log-sum-exp of the scores [M, 1]).

    Read off a row's greatest entry: lse = s_max - log(p_max).
    """

    def __init__(self, head_dim: int, masked: bool) -> None:
        super().__init__()
        self.dim, self.masked = head_dim, masked
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax, self.top = ops.Softmax(-1), ops.ArgMaxWithValue(axis=-1, keep_dims=True)

    def construct(self, q: Tensor, columns: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        """`q` [M, D+1], `columns` [K*P, C], page rows; the rest: the mask [K*P, R*G, C] if
        masked; the pages of keys and values."""
        tiles, _ = ops.shape(columns)
        keys, values = ops.gather(rest[-2], columns, 0), ops.gather(rest[-1], columns, 0)
        scores = self.scores(q.reshape((tiles, -1, self.dim + 1)), keys)
        if self.masked:
            scores = scores + rest[0]
        weights = self.softmax(scores)
        index, top = self.top(weights)
        lse = ops.gather_elements(scores, 2, index) - ops.log(top)
        return self.mix(weights, values).reshape((-1, self.dim)), lse.reshape((-1, 1))


class Extend(nn.Cell):
    """One more KV tile; the last of its columns is the key that stands for all before."""

    def __init__(self, head_dim: int, masked: bool) -> None:
        super().__init__()
        self.dim, self.masked = head_dim, masked
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax, self.matmul = ops.Softmax(-1), ops.MatMul()
        self.unit = Tensor(np.eye(1, head_dim + 1, head_dim, dtype=np.float32))
        self.spread = Tensor(np.ones((1, head_dim), np.float32))

    def construct(
        self, q: Tensor, output: Tensor, lse: Tensor, columns: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Attend`, with one column more, never masked: (output, lse) with this tile."""
        tiles, _ = ops.shape(columns)
        keys, values = ops.gather(rest[-2], columns, 0), ops.gather(rest[-1], columns, 0)
        q = q + self.matmul(lse, self.unit)
        scores = self.scores(q.reshape((tiles, -1, self.dim + 1)), keys)
        if self.masked:
            scores = scores + rest[0]
        weights = self.softmax(scores)
        before = weights[:, :, -1:].reshape((-1, 1))
        mixed = self.mix(weights, values).reshape((-1, self.dim))
        return mixed + self.matmul(before, self.spread) * output, lse - ops.log(before)


class Merge(nn.Cell):
    """Two attended tiles as one. A tile that a row sees nothing of (lse -1e30) is the identity."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.matmul, self.spread = ops.MatMul(), Tensor(np.ones((1, head_dim), np.float32))

    def construct(
        self, output: Tensor, lse: Tensor, output_b: Tensor, lse_b: Tensor
    ) -> tuple[Tensor, Tensor]:
        share = self.matmul(ops.sigmoid(lse_b - lse), self.spread)
        total = ops.maximum(lse, lse_b) + ops.log1p(ops.exp(-ops.abs(lse - lse_b)))
        return output + share * (output_b - output), total
