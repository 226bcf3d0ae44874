"""The CPU op set: graphs of plain primitives, each compiled once for every shape it meets.

Letters: T tokens, H hidden, N query heads, K KV heads, G = N/K, D head dim, P tiles of a group,
R rows and C columns of a tile, n its blocks, B block size, Z zeroed slots, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.kv.store import LayerPages
from vpp_ms.model.ops.cpu_moe import MoE
from vpp_ms.model.worklist import TileGroup, WorkList

MASKED = -1e30  # finite, so that a tile masked as a whole merges as the identity


class RMSNorm(nn.Cell):
    """x * weight / sqrt(mean(x^2) + eps) over the last axis, of length `width`."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps, self.ones = eps, Tensor(np.full((width, 1), 1 / width, np.float32))
        self.matmul = ops.MatMul()  # a row sum this way is four times as fast as ReduceSum

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * ops.rsqrt(self.matmul(ops.square(x), self.ones) + self.eps) * weight


class Embed(nn.Cell):
    def construct(self, ids_T: Tensor, table_VH: Tensor) -> Tensor:
        return ops.gather(table_VH, ids_T, 0)


class Head(nn.Cell):
    """Final norm and logits of the sampled rows."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm = RMSNorm(spec.hidden_size, spec.rms_eps)
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, x_TH: Tensor, samples_R: Tensor, norm_H: Tensor, head_VH: Tensor) -> Tensor:
        return self.matmul(self.norm(ops.gather(x_TH, samples_R, 0), norm_H), head_VH)


class QKV(nn.Cell):
    """Norm, projections, rotation; writes keys and values; returns scaled queries [T, N*D]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
        self.bias, self.qk_norm = spec.attention_bias, spec.qk_norm
        self.scale = self.dim**-0.5
        self.norm = RMSNorm(spec.hidden_size, spec.rms_eps)
        self.head_norm = RMSNorm(spec.head_dim, spec.rms_eps)
        self.matmul, self.scatter = ops.MatMul(), ops.ScatterNdUpdate()
        self.concat, self.swap = ops.Concat(0), ops.Concat(-1)

    def construct(
        self,
        x_TH: Tensor,
        cos_TD: Tensor,
        sin_TD: Tensor,
        slots: Tensor,
        zeros: Tensor,
        keys: Tensor,
        values: Tensor,
        attn_norm: Tensor,
        qkv: Tensor,
        *extra: Tensor,
    ) -> Tensor:
        """`slots` [(T+Z)*K, 3] of (head, block, offset), `zeros` [Z, K*D]."""
        y = self.matmul(self.norm(x_TH, attn_norm), qkv)
        if self.bias:
            y = y + extra[0]
        q_end, k_end = self.heads * self.dim, (self.heads + self.kv_heads) * self.dim
        q, k, v = y[:, :q_end], y[:, q_end:k_end], y[:, k_end:]
        if self.qk_norm:
            q = self.head_norm(q.reshape((-1, self.dim)), extra[-2])
            k = self.head_norm(k.reshape((-1, self.dim)), extra[-1])
        q = self.rotate(q.reshape((-1, self.heads, self.dim)), cos_TD, sin_TD) * self.scale
        k = self.rotate(k.reshape((-1, self.kv_heads, self.dim)), cos_TD, sin_TD)
        k = self.concat((k.reshape((-1, self.kv_heads * self.dim)), zeros))
        v = self.concat((v, zeros))
        written = self.scatter(keys, slots, k.reshape((-1, self.dim)))
        q = ops.depend(q, written)
        written = self.scatter(values, slots, v.reshape((-1, self.dim)))
        return ops.depend(q, written).reshape((-1, q_end))

    def rotate(self, x: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        half = self.dim // 2
        swapped = self.swap((x[:, :, half:], x[:, :, :half]))
        return x * cos_TD.expand_dims(1) + swapped * sin_TD.expand_dims(1)


class Mask(nn.Cell):
    """What is added to a tile's scores, [P, R*G, C]: 0 where the row may see the column."""

    def __init__(self, group: int, window: int | None) -> None:
        super().__init__()
        self.group, self.window = group, window
        self.seen, self.hidden = Tensor(0.0, ms.float32), Tensor(MASKED, ms.float32)

    def construct(self, rows_PR: Tensor, columns_PC: Tensor) -> Tensor:
        rows = ops.repeat_interleave(rows_PR, self.group, 1).expand_dims(-1)
        columns = columns_PC.expand_dims(1)
        hidden = columns > rows
        if self.window is not None:
            hidden = ops.logical_or(hidden, columns <= rows - self.window)
        return ops.select(hidden, self.hidden, self.seen)


class Gather(nn.Cell):
    """Queries [T, N*D] to tiles [K, P, R*G, D], rows ordered (r, g)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.kv_heads, self.dim = spec.num_kv_heads, spec.head_dim
        self.width = spec.num_heads // spec.num_kv_heads * spec.head_dim

    def construct(self, q: Tensor, tokens_PR: Tensor) -> Tensor:
        tiles, _ = ops.shape(tokens_PR)
        picked = ops.gather(q, tokens_PR.reshape((-1,)), 0)
        heads_first = picked.reshape((-1, self.kv_heads, self.width)).transpose((1, 0, 2))
        return heads_first.reshape((self.kv_heads, tiles, -1, self.dim))


class Attend(nn.Cell):
    """One KV tile for one group of query tiles: (output, log-sum-exp of the scores).

    Softmax is the one fast exponential here, so its weights are taken as they are and the
    log-sum-exp is read off a row's greatest entry: lse = s_max - log(p_max).
    """

    def __init__(self, spec: ModelSpec, masked: bool, merge: bool) -> None:
        super().__init__()
        self.kv_heads, self.dim = spec.num_kv_heads, spec.head_dim
        self.masked, self.merge = masked, merge
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax, self.top = ops.Softmax(-1), ops.ArgMaxWithValue(axis=-1, keep_dims=True)

    def construct(self, q: Tensor, blocks_Pn: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        """`q` [K, P, R*G, D]. The rest: the mask [P, R*G, C] if masked; output and lse so far if
        merging; the pages of keys and values."""
        tiles, _ = ops.shape(blocks_Pn)
        flat = blocks_Pn.reshape((-1,))
        k = ops.gather(rest[-2], flat, 1).reshape((self.kv_heads, tiles, -1, self.dim))
        v = ops.gather(rest[-1], flat, 1).reshape((self.kv_heads, tiles, -1, self.dim))
        scores = self.scores(q, k)
        if self.masked:
            scores = scores + rest[0]
        weights = self.softmax(scores)
        index, top = self.top(weights)
        lse = ops.gather_elements(scores, 3, index) - ops.log(top)
        output = self.mix(weights, v)
        if self.merge:
            output_before, lse_before = rest[-4], rest[-3]
            share = ops.sigmoid(lse - lse_before)
            output = output_before + share * (output - output_before)
            lse = ops.maximum(lse, lse_before) + ops.log1p(ops.exp(-ops.abs(lse - lse_before)))
        return output, lse


class Scatter(nn.Cell):
    """Tiles [K, P, R*G, D] back to rows [P*R, N*D]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.kv_heads = spec.num_kv_heads
        self.width = spec.num_heads // spec.num_kv_heads * spec.head_dim
        self.out = spec.num_heads * spec.head_dim

    def construct(self, output: Tensor) -> Tensor:
        heads_first = output.reshape((self.kv_heads, -1, self.width))
        return heads_first.transpose((1, 0, 2)).reshape((-1, self.out))


class Dense(nn.Cell):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.matmul = width, ops.MatMul()

    def construct(self, x_TH: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        both = self.matmul(x_TH, gate_up)
        return self.matmul(ops.silu(both[:, : self.width]) * both[:, self.width :], down)


class FFN(nn.Cell):
    """Behind attention: output projection, residual, norm, dense FFN or experts, residual."""

    def __init__(self, spec: ModelSpec, kind: str) -> None:
        super().__init__()
        self.norm, self.matmul = RMSNorm(spec.hidden_size, spec.rms_eps), ops.MatMul()
        moe = spec.moe if kind == "moe" else None
        self.ffn = Dense(spec.intermediate_size) if moe is None else MoE(moe)

    def construct(
        self,
        x_TH: Tensor,
        attended: Tensor,
        rows_T: Tensor,
        o: Tensor,
        ffn_norm: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        x_TH = x_TH + self.matmul(ops.gather(attended, rows_T, 0), o)
        return x_TH + self.ffn(self.norm(x_TH, ffn_norm), *weights)


class LayerWeights(NamedTuple):
    """attention: attn_norm [H], qkv [H, (N+2K)*D], then qkv_bias and q_norm [D], k_norm [D] if the
    model has them. ffn: o [N*D, H], ffn_norm [H], then dense gate_up [H, 2F], down [F, H]; or
    MoE router [H, E], gate_up [E, H, 2F], down [E, F, H]."""

    attention: tuple[Parameter, ...]
    ffn: tuple[Parameter, ...]


class _Group(NamedTuple):
    tokens_PR: Tensor
    kv_tiles: tuple[tuple[Tensor, Tensor | None], ...]  # blocks_Pn, mask


class Batch(NamedTuple):
    """A work list on the device."""

    cos_TD: Tensor
    sin_TD: Tensor
    slots: Tensor
    zeros: Tensor
    groups: tuple[_Group, ...]
    rows_T: Tensor
    samples_R: Tensor | None


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


class CpuOps:
    """The graphs of one model, shared by all its layers and stages in this process."""

    def __init__(self, spec: ModelSpec) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        kv_heads, dim, group = spec.num_kv_heads, spec.head_dim, spec.num_heads // spec.num_kv_heads
        x, q, index = _f32(None, spec.hidden_size), _f32(None, spec.num_heads * dim), _i32(None)
        tiles, mask = _f32(kv_heads, None, None, dim), _f32(None, None, None)
        state, kv = (tiles, _f32(kv_heads, None, None, 1)), _f32(None, kv_heads * dim)
        table = _f32(None, dim)
        self._kv_heads, self._kv_width, self._concat = kv_heads, kv_heads * dim, ops.Concat(0)
        self._gather_group = group
        self._embed = Graph(Embed(), index)
        self._head = Graph(Head(spec), x, index)
        self._mask = Graph(Mask(group, spec.sliding_window), _i32(None, None), _i32(None, None))
        self._qkv = Graph(QKV(spec), x, table, table, _i32(None, 3), kv)
        self._gather = Graph(Gather(spec), q, _i32(None, None))
        self._scatter = Graph(Scatter(spec), tiles)
        self._attend = {
            (masked, merge): Graph(
                Attend(spec, masked, merge),
                tiles,
                _i32(None, None),
                *[mask] * masked,
                *state * merge,
            )
            for masked in (False, True)
            for merge in (False, True)
        }
        self._ffn = {kind: Graph(FFN(spec, kind), x, q, index) for kind in ("dense", "moe")}

    def embed(self, ids_T: np.ndarray | Tensor, table_VH: Parameter) -> Tensor:
        ids = ids_T if isinstance(ids_T, Tensor) else _index(ids_T)
        return self._embed(ids, table_VH)

    def head(self, x_TH: Tensor, batch: Batch, norm_H: Parameter, head_VH: Parameter) -> Tensor:
        return self._head(x_TH, batch.samples_R, norm_H, head_VH)

    def batch(self, work: WorkList, cos_TD: np.ndarray, sin_TD: np.ndarray) -> Batch:
        slots = np.repeat(work.write_slots, self._kv_heads, axis=0)
        heads = np.tile(np.arange(self._kv_heads, dtype=np.int32), len(work.write_slots))
        return Batch(
            Tensor.from_numpy(cos_TD),
            Tensor.from_numpy(sin_TD),
            _index(np.column_stack([heads, slots])),
            Tensor.from_numpy(np.zeros((work.num_zeroed, self._kv_width), np.float32)),
            tuple(self._group(group) for group in work.groups),
            _index(work.rows_T),
            _index(work.samples_R) if work.samples_R.size else None,
        )

    def layer(
        self, kind: str, x_TH: Tensor, batch: Batch, pages: LayerPages, weights: LayerWeights
    ) -> Tensor:
        q = self._qkv(
            x_TH, batch.cos_TD, batch.sin_TD, batch.slots, batch.zeros, *pages, *weights.attention
        )
        rows = [self._attention(q, group, pages) for group in batch.groups]
        attended = rows[0] if len(rows) == 1 else self._concat(rows)
        return self._ffn[kind](x_TH, attended, batch.rows_T, *weights.ffn)

    def warm_up(self, pages: LayerPages) -> None:
        """Compile the attention variants that a first short prompt would not meet."""
        kv_heads, _, size, dim = pages.keys.shape
        group = self._gather_group
        tiles = Tensor.from_numpy(np.zeros((kv_heads, 1, group, dim), np.float32))
        state = tiles, Tensor.from_numpy(np.zeros((kv_heads, 1, group, 1), np.float32))
        mask = Tensor.from_numpy(np.zeros((1, group, size), np.float32))
        for (masked, merge), attend in self._attend.items():
            attend(tiles, _index(np.zeros((1, 1))), *[mask] * masked, *state * merge, *pages)

    def _attention(self, q: Tensor, group: _Group, pages: LayerPages) -> Tensor:
        tiles = self._gather(q, group.tokens_PR)
        state: tuple[Tensor, ...] = ()
        for blocks_Pn, mask in group.kv_tiles:
            extra = state if mask is None else (mask, *state)
            attend = self._attend[mask is not None, bool(state)]
            state = attend(tiles, blocks_Pn, *extra, *pages)
        return self._scatter(state[0])

    def _group(self, group: TileGroup) -> _Group:
        rows = _index(group.positions_PR)
        tiles = tuple(
            (
                _index(tile.blocks_Pn),
                None if tile.positions_PC is None else self._mask(rows, _index(tile.positions_PC)),
            )
            for tile in group.kv_tiles
        )
        return _Group(_index(group.tokens_PR), tiles)


def _f32(*shape: int | None) -> Tensor:
    """A placeholder for `set_inputs`: None is any length."""
    return Tensor(shape=list(shape), dtype=ms.float32)


def _i32(*shape: int | None) -> Tensor:
    return Tensor(shape=list(shape), dtype=ms.int32)


def _index(array: np.ndarray) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array, np.int32))
