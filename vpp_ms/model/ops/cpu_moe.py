"""Mixture of experts on CPU, in two graphs: the router, and the experts for a packing made of its
choice on the host. Shapes that depend on values inside a graph would cost a third of its speed.

Letters: T tokens, H hidden, E experts, J chosen experts per token, c the greatest load, F width.
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
    """All experts' SwiGLU as batched matmuls, weighted, added to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = ops.BatchMatMul()

    def construct(
        self,
        x_TH: Tensor,
        normed_TH: Tensor,
        weights_TJ: Tensor,
        tokens_Ec: Tensor,
        rows_TJ: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
    ) -> Tensor:
        width = ops.shape(x_TH)[1]
        x_EcH = ops.gather(normed_TH, tokens_Ec, 0)
        y = self.matmul(ops.silu(self.matmul(x_EcH, gate)) * self.matmul(x_EcH, up), down)
        y_TJH = ops.gather(y.reshape((-1, width)), rows_TJ, 0)
        return x_TH + self.matmul(weights_TJ.expand_dims(1), y_TJH).reshape((-1, width))
