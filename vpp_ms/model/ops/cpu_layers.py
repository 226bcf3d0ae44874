"""The CPU op set's cells: plain primitives, chosen by measurement.

With dynamic shapes broadcasts, transposes and divisions are slow on CPU, an order of magnitude
behind same-shape arithmetic. So columns and rows are spread by a matmul with ones, transposes
are gathers of rows, and tables come in full size from the host.

Letters: T tokens, H hidden, N query heads, K KV heads, G = N/K, D head dim, P tiles of a group,
R rows and C columns of a tile, Z zeroed slots, V vocabulary. Token t's outputs for KV head k are
one row (t, k) of width G*D.
"""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.model.ops.cpu_moe import Route


class RMSNorm(nn.Cell):
    """x * weight / sqrt(mean(x^2) + eps) over the last axis, of length `width`."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps, self.mean = eps, Tensor(np.full((width, 1), 1 / width, np.float32))
        self.matmul = ops.MatMul()

    def construct(self, x: Tensor, weight_1: Tensor) -> Tensor:
        """`weight_1` [1, width]"""
        scale = ops.rsqrt(self.matmul(ops.square(x), self.mean) + self.eps)
        return x * self.matmul(scale, weight_1)


class Embed(nn.Cell):
    def construct(self, ids_T: Tensor, table_VH: Tensor) -> Tensor:
        return ops.gather(table_VH, ids_T, 0)


class Head(nn.Cell):
    """Final norm and logits of the sampled rows."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm = RMSNorm(spec.hidden_size, spec.rms_eps)
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(
        self, x_TH: Tensor, samples_R: Tensor, norm_1H: Tensor, head_VH: Tensor
    ) -> Tensor:
        return self.matmul(self.norm(ops.gather(x_TH, samples_R, 0), norm_1H), head_VH)


class QKV(nn.Cell):
    """Norm, projections, rotation; writes keys and values; returns the queries of all groups.

    Queries and keys get one more, zero component (see `cpu_attention`).
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.dim, self.bias, self.qk_norm = spec.head_dim, spec.attention_bias, spec.qk_norm
        self.v_width = spec.num_kv_heads * self.dim
        self.k_end = spec.num_heads * self.dim + self.v_width
        self.padded = self.dim + 1
        self.q_end_padded = spec.num_heads * self.padded
        self.k_end_padded = self.q_end_padded + spec.num_kv_heads * self.padded
        self.norm = RMSNorm(spec.hidden_size, spec.rms_eps)
        self.eps, self.mean = spec.rms_eps, Tensor(np.full((self.dim, 1), 1 / self.dim, np.float32))
        self.spread = Tensor(np.ones((1, self.dim), np.float32))
        self.matmul, self.scatter = ops.MatMul(), ops.ScatterUpdate()
        self.stack, self.join = ops.Concat(0), ops.Concat(-1)

    def construct(
        self,
        x_TH: Tensor,
        cos: Tensor,
        sin: Tensor,
        pad: Tensor,
        ones_T1: Tensor,
        slots: Tensor,
        zeros: Tensor,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        attn_norm: Tensor,
        qkv: Tensor,
        *extra: Tensor,
    ) -> Tensor:
        """`cos`, `sin` [T*(N+K), D/2], `pad` zeros [T*(N+K), 1]; `slots` [(T+Z)*K], page rows;
        `zeros` [Z, K*(D+1)]; `queries`: the tiles' rows (k, p, r, g) among all heads' rows."""
        y = self.matmul(self.norm(x_TH, attn_norm), qkv)
        if self.bias:
            y = y + self.matmul(ones_T1, extra[0])
        v = y[:, self.k_end :]
        qk = y[:, : self.k_end]
        if self.qk_norm:
            rows = qk.reshape((-1, self.dim))
            scale = ops.rsqrt(self.matmul(ops.square(rows), self.mean) + self.eps)
            qk = (rows * self.matmul(scale, self.spread)).reshape((-1, self.k_end))
            qk = qk * self.matmul(ones_T1, extra[-1])
        rows, half = qk.reshape((-1, self.dim)), self.dim // 2
        a, b = rows[:, :half], rows[:, half:]
        rows = self.join((a * cos - b * sin, b * cos + a * sin, pad))
        q = ops.gather(rows, queries, 0)
        k = rows.reshape((-1, self.k_end_padded))[:, self.q_end_padded :]
        k = self.stack((k, zeros)).reshape((-1, self.padded))
        v = self.stack((v, zeros[:, : self.v_width])).reshape((-1, self.dim))
        q = ops.depend(q, self.scatter(keys, slots, k))
        return ops.depend(q, self.scatter(values, slots, v))


class Project(nn.Cell):
    """Behind attention: output projection, residual, norm."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.width = spec.num_heads * spec.head_dim
        self.group_width = self.width // spec.num_kv_heads
        self.norm, self.matmul = RMSNorm(spec.hidden_size, spec.rms_eps), ops.MatMul()

    def construct(
        self, x_TH: Tensor, attended: Tensor, rows: Tensor, o: Tensor, ffn_norm: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`attended`: the groups' outputs [*, D]; `rows`: where in it lies (t, k)."""
        attended = ops.gather(attended.reshape((-1, self.group_width)), rows, 0)
        x_TH = x_TH + self.matmul(attended.reshape((-1, self.width)), o)
        return x_TH, self.norm(x_TH, ffn_norm)


class Dense(nn.Cell):
    """Projection, then SwiGLU: x + down(silu(gate(norm(x))) * up(norm(x)))."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.project, self.matmul = Project(spec), ops.MatMul()

    def construct(
        self,
        x_TH: Tensor,
        attended: Tensor,
        rows: Tensor,
        o: Tensor,
        ffn_norm: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
    ) -> Tensor:
        x_TH, normed = self.project(x_TH, attended, rows, o, ffn_norm)
        hidden = ops.silu(self.matmul(normed, gate)) * self.matmul(normed, up)
        return x_TH + self.matmul(hidden, down)


class Router(nn.Cell):
    """Projection, then the choice of experts: (x, norm(x), experts [T, J], weights [T, J])."""

    def __init__(self, spec: ModelSpec, moe: MoESpec) -> None:
        super().__init__()
        self.project, self.route = Project(spec), Route(moe)

    def construct(
        self,
        x_TH: Tensor,
        attended: Tensor,
        rows: Tensor,
        o: Tensor,
        ffn_norm: Tensor,
        router: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x_TH, normed = self.project(x_TH, attended, rows, o, ffn_norm)
        experts_TJ, weights_TJ = self.route(normed, router)
        return x_TH, normed, experts_TJ, weights_TJ
