"""Mixture of experts on CPU, in two graphs: the router, and the experts for a packing made of its
choice on the host. Shapes that depend on values inside a graph would cost a third of its speed.

Letters: T tokens, H hidden, E experts, J chosen experts per token, F width, n tiles of c rows.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from vpp_ms.config.model_spec import MoESpec


class Route(nn.Cell):
    """The J most probable experts, in float32; of equal ones the lowest id (TopK does not say)."""

    def __init__(self, moe: MoESpec) -> None:
        super().__init__()
        self.top_k, self.norm_topk = moe.top_k, moe.norm_topk
        self.matmul, self.softmax = ops.MatMul(), ops.Softmax(-1)
        self.top, self.join = ops.ArgMaxWithValue(axis=-1, keep_dims=True), ops.Concat(1)
        self.ids, self.taken = Tensor(np.arange(moe.num_experts)[None], ms.int32), Tensor(-1.0)

    def construct(self, x_TH: Tensor, router_HE: Tensor) -> tuple[Tensor, Tensor]:
        """(experts int32 [T, J], weights [T, J])"""
        left_TE = self.softmax(self.matmul(x_TH, router_HE))
        experts, weights = [], []
        for _ in range(self.top_k):
            expert, weight = self.top(left_TE)
            left_TE = ops.select(self.ids == expert, self.taken, left_TE)
            experts.append(expert)
            weights.append(weight)
        weights_TJ = self.join(weights)
        if self.norm_topk:
            weights_TJ = weights_TJ / weights_TJ.sum(-1, keepdims=True)
        return self.join(experts), weights_TJ


class Experts(nn.Cell):
    """The tiles' SwiGLU as batched matmuls, weighted, added to the residual stream.

    `copied`: the tiles' weights are copied by expert id; else there is a tile for each expert.
    """

    def __init__(self, copied: bool) -> None:
        super().__init__()
        self.copied, self.matmul = copied, ops.BatchMatMul()

    def construct(
        self,
        x_TH: Tensor,
        normed_TH: Tensor,
        weights_TJ: Tensor,
        tokens_nc: Tensor,
        rows_TJ: Tensor,
        *rest: Tensor,
    ) -> Tensor:
        """The rest: experts [n] if copied; gate, up [E, H, F], down [E, F, H]."""
        width = ops.shape(x_TH)[1]
        gate, up, down = rest[-3], rest[-2], rest[-1]
        if self.copied:
            experts_n = rest[0]
            gate, up = ops.gather(gate, experts_n, 0), ops.gather(up, experts_n, 0)
            down = ops.gather(down, experts_n, 0)
        x_ncH = ops.gather(normed_TH, tokens_nc, 0)
        y = self.matmul(ops.silu(self.matmul(x_ncH, gate)) * self.matmul(x_ncH, up), down)
        y_TJH = ops.gather(y.reshape((-1, width)), rows_TJ, 0)
        return x_TH + self.matmul(weights_TJ.expand_dims(1), y_TJH).reshape((-1, width))
