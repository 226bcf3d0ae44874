"""Mixture of experts on CPU: no token is dropped, whatever the load of an expert.

Letters: T tokens, H hidden, E experts, J chosen experts per token, A = T*J assignments, F width,
c the greatest load of an expert.
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
        self.top = ops.ArgMaxWithValue(axis=-1, keep_dims=True)
        self.ids, self.taken = Tensor(np.arange(moe.num_experts)[None], ms.int32), Tensor(-1.0)

    def construct(self, x_TH: Tensor, router_HE: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(experts int32 [T, J], for each choice its weight [T, 1])"""
        left_TE = self.softmax(self.matmul(x_TH, router_HE))
        experts, weights, total = [], [], 0.0
        for _ in range(self.top_k):
            expert, weight = self.top(left_TE)
            left_TE = ops.select(self.ids == expert, self.taken, left_TE)
            experts.append(expert)
            weights.append(weight)
            total = total + weight
        if self.norm_topk:
            weights = [weight / total for weight in weights]
        return ops.concat(experts, 1), weights


class MoE(nn.Cell):
    """Assignments sorted by expert, then one batched matmul over all experts."""

    def __init__(self, moe: MoESpec, hidden_size: int) -> None:
        super().__init__()
        self.top_k, self.route = moe.top_k, Route(moe)
        self.matmul, self.spread = ops.BatchMatMul(), ops.MatMul()
        self.ones_1H = Tensor(np.ones((1, hidden_size), np.float32))
        self.bounds = Tensor(np.arange(moe.num_experts + 1), ms.float32)

    def construct(
        self,
        x_TH: Tensor,
        ones_T1: Tensor,
        router: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
    ) -> Tensor:
        experts_TJ, weights = self.route(x_TH, router)
        sorted_A, order_A = ops.sort(experts_TJ.reshape((-1,)).astype(ms.float32), 0)
        starts = ops.searchsorted(sorted_A, self.bounds).astype(ms.int32)
        load = (starts[1:] - starts[:-1]).max()
        lane_c = ops.range(Tensor(0, ms.int32), load, Tensor(1, ms.int32))
        slots_Ec = starts[:-1].expand_dims(1) + lane_c
        slots_Ec = ops.minimum(slots_Ec, starts[-1] - 1)
        x_EcH = ops.gather(x_TH, ops.gather(order_A, slots_Ec, 0) // self.top_k, 0)
        y = self.matmul(ops.silu(self.matmul(x_EcH, gate)) * self.matmul(x_EcH, up), down)
        y = y.reshape((-1, ops.shape(x_TH)[1]))
        _, rank_A = ops.sort(order_A.astype(ms.float32), 0)
        rank_TJ = rank_A.reshape((-1, self.top_k)).astype(ms.int32)
        row_TJ = rank_TJ + experts_TJ * load - ops.gather(starts, experts_TJ, 0)
        mixed = 0.0
        for j in range(self.top_k):
            weight_TH = self.spread(weights[j], self.ones_1H)
            mixed = mixed + weight_TH * ops.gather(y, row_TJ[:, j], 0)
        return mixed
