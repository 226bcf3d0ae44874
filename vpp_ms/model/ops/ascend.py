"""`AscendOps`: the Ascend op set. Not yet run on hardware: written to MindSpore's API documents.

bfloat16 throughout; the router's choice is made in float32. Attention is one fused call per
segment over its keys and values gathered from the pages (paging inside the kernel is documented
for single queries only); experts are grouped matmuls over tokens sorted by expert.

Letters: T tokens, H hidden, N query heads, K KV heads, D head dim, Z zeroed slots, E experts,
J chosen experts per token, S tokens of a segment, L tokens it sees, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.ops.auto_generate import grouped_matmul_v4

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.errors import ConfigError
from vpp_ms.kv.store import LayerPages, TokenMajorStore
from vpp_ms.model.ops.base import LayerWeights
from vpp_ms.model.ops.graph import Graph, i32
from vpp_ms.model.worklist import WorkList

BF16 = ms.bfloat16


class QKV(nn.Cell):
    """Norm, projections, rotation; writes keys and values; returns queries [T, N*D]."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.eps, self.dim = spec.rms_eps, spec.head_dim
        self.bias, self.qk_norm = spec.attention_bias, spec.qk_norm
        self.q_end = spec.num_heads * spec.head_dim
        self.k_end = self.q_end + spec.num_kv_heads * spec.head_dim
        self.unit, self.scatter = Tensor(np.ones(spec.head_dim), BF16), ops.ScatterUpdate()

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
        """`slots` [T+Z], `zeros` [Z, K*D]"""
        y = mint.matmul(ops.rms_norm(x_TH, attn_norm[0], self.eps)[0], qkv)
        if self.bias:
            y = y + extra[0]
        qk, v = y[:, : self.k_end].reshape((-1, self.k_end // self.dim, self.dim)), y
        if self.qk_norm:
            weights = extra[-1].reshape((1, -1, self.dim))
            qk = ops.rms_norm(qk, self.unit, self.eps)[0] * weights
        first, second = mint.chunk(qk, 2, -1)
        swapped = mint.cat((second, first), -1)
        qk = qk * cos_TD.expand_dims(1) + swapped * sin_TD.expand_dims(1)
        qk = qk.reshape((-1, self.k_end))
        written = self.scatter(keys, slots, mint.cat((qk[:, self.q_end :], zeros)))
        q = ops.depend(qk[:, : self.q_end], written)
        return ops.depend(q, self.scatter(values, slots, mint.cat((v[:, self.k_end :], zeros))))


class Attend(nn.Cell):
    """One segment: its S queries are the last of the L tokens; each sees those up to itself."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.heads, self.kv_heads = spec.num_heads, spec.num_kv_heads
        self.scale = spec.head_dim**-0.5
        self.causal_mask = Tensor(np.triu(np.ones((2048, 2048)), 1), ms.uint8)

    def construct(self, q: Tensor, seen_L: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        output, _ = ops.fused_infer_attention_score(
            q.expand_dims(0),
            ops.gather(keys, seen_L, 0).expand_dims(0),
            ops.gather(values, seen_L, 0).expand_dims(0),
            atten_mask=self.causal_mask,
            num_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            scale=self.scale,
            input_layout="BSH",
            sparse_mode=3,
        )
        return output[0]


class Dense(nn.Cell):
    """Output projection, residual, norm, SwiGLU, residual."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.eps = spec.rms_eps

    def construct(
        self,
        x_TH: Tensor,
        attended: Tensor,
        o: Tensor,
        ffn_norm: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
    ) -> Tensor:
        x_TH = x_TH + mint.matmul(attended, o)
        normed = ops.rms_norm(x_TH, ffn_norm[0], self.eps)[0]
        hidden = mint.nn.functional.silu(mint.matmul(normed, gate)) * mint.matmul(normed, up)
        return x_TH + mint.matmul(hidden, down)


class MoE(nn.Cell):
    """Output projection, residual, norm, experts, residual. No token is dropped."""

    def __init__(self, spec: ModelSpec, moe: MoESpec) -> None:
        super().__init__()
        self.eps, self.top_k, self.norm_topk = spec.rms_eps, moe.top_k, moe.norm_topk
        self.ids = Tensor(np.arange(moe.num_experts)[None], ms.int64)

    def construct(
        self,
        x_TH: Tensor,
        attended: Tensor,
        o: Tensor,
        ffn_norm: Tensor,
        router: Tensor,
        gate: Tensor,
        up: Tensor,
        down: Tensor,
    ) -> Tensor:
        x_TH = x_TH + mint.matmul(attended, o)
        normed = ops.rms_norm(x_TH, ffn_norm[0], self.eps)[0]
        shares = mint.nn.functional.softmax(mint.matmul(normed.float(), router.float()), -1)
        # Stable: of equal experts the lowest id.
        shares, experts = mint.sort(shares, dim=-1, descending=True, stable=True)
        shares_TJ, experts_TJ = shares[:, : self.top_k], experts[:, : self.top_k]
        if self.norm_topk:
            shares_TJ = shares_TJ / mint.sum(shares_TJ, -1, True)
        rows, order = ops.moe_token_permute(normed, experts_TJ.astype(ms.int32))
        loads_E = mint.sum((experts_TJ.reshape((-1, 1)) == self.ids).astype(ms.int64), 0)
        gated = mint.nn.functional.silu(self.by_expert(rows, gate, loads_E))
        y = self.by_expert(gated * self.by_expert(rows, up, loads_E), down, loads_E)
        return x_TH + ops.moe_token_unpermute(y, order, shares_TJ.astype(y.dtype))

    def by_expert(self, rows: Tensor, weights_E: Tensor, loads_E: Tensor) -> Tensor:
        return grouped_matmul_v4(
            [rows], [weights_E], group_list=loads_E, split_item=3, group_type=0, group_list_type=1
        )[0]


class Head(nn.Cell):
    """Final norm and float32 logits of the sampled rows."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.eps = spec.rms_eps

    def construct(
        self, x_TH: Tensor, samples_R: Tensor, norm_1H: Tensor, head_VH: Tensor
    ) -> Tensor:
        normed = ops.rms_norm(ops.gather(x_TH, samples_R, 0), norm_1H[0], self.eps)[0]
        return mint.matmul(normed, mint.transpose(head_VH, 0, 1)).float()


class Batch(NamedTuple):
    """A work list on the device; a segment is (first token, end token, slots it sees [L])."""

    qkv: tuple[Tensor, ...]
    segments: tuple[tuple[int, int, Tensor], ...]


class AscendOps:
    """The graphs of one model, shared by all its layers and stages in this process."""

    dtype = BF16

    def __init__(self, spec: ModelSpec) -> None:
        if spec.sliding_window is not None:
            raise ConfigError("context.device_target", "Ascend", allowed="no sliding window")
        self._spec = spec
        x, q = _bf16(spec.hidden_size), _bf16(spec.num_heads * spec.head_dim)
        table, zeros = _bf16(spec.head_dim), _bf16(spec.num_kv_heads * spec.head_dim)
        self._head = Graph(partial(Head, spec), x, i32(None))
        self._qkv = Graph(partial(QKV, spec), x, table, table, i32(None), zeros)
        self._attend = Graph(partial(Attend, spec), q, i32(None))
        self._ffn = {"dense": Graph(partial(Dense, spec), x, q)}
        if spec.moe is not None:
            self._ffn["moe"] = Graph(partial(MoE, spec, spec.moe), x, q)

    def new_store(self, layers: Iterable[int], num_blocks: int, block_size: int) -> TokenMajorStore:
        return TokenMajorStore(
            layers,
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=self._spec.num_kv_heads,
            head_dim=self._spec.head_dim,
        )

    def batch(
        self,
        work: WorkList,
        store: TokenMajorStore,
        cos_TD: np.ndarray,
        sin_TD: np.ndarray,
        exact: bool = False,
    ) -> Batch:
        """The fused kernel is exact for any scores: `exact` changes nothing."""
        segments, first = [], 0
        for s in work.segments:
            slots = np.asarray(s.blocks)[:, None] * store.block_size + np.arange(store.block_size)
            seen_L = Tensor(slots.reshape(-1)[: s.start + s.length], ms.int32)
            segments.append((first, first + s.length, seen_L))
            first += s.length
        zeros = np.zeros((work.num_zeroed, self._spec.num_kv_heads * self._spec.head_dim))
        tables = Tensor(cos_TD, BF16), Tensor(sin_TD, BF16)
        slots_written = Tensor(work.write_slots, ms.int32)
        return Batch((*tables, slots_written, Tensor(zeros, BF16)), tuple(segments))

    def layer(
        self, kind: str, x_TH: Tensor, batch: Batch, pages: LayerPages, weights: LayerWeights
    ) -> Tensor:
        q = self._qkv(x_TH, *batch.qkv, *pages, *weights.attention)
        parts = [self._attend(q[a:b], seen_L, *pages) for a, b, seen_L in batch.segments]
        attended = parts[0] if len(parts) == 1 else mint.cat(parts)
        return self._ffn[kind](x_TH, attended, *weights.ffn)

    def embed(self, ids_T: np.ndarray, table_VH: Parameter) -> Tensor:
        return ops.gather(table_VH, Tensor(ids_T, ms.int32), 0)

    def head(
        self, x_TH: Tensor, samples_R: np.ndarray, norm_1H: Parameter, head_VH: Parameter
    ) -> Tensor:
        return self._head(x_TH, Tensor(samples_R, ms.int32), norm_1H, head_VH)

    def is_finite(self, x_TH: Tensor) -> bool:
        return True

    def warm_up(self, kind: str, pages: LayerPages, weights: LayerWeights) -> None:
        """Nothing: the first micro-batch compiles."""

    def pinning(self) -> AbstractContextManager[None]:
        return nullcontext()


def _bf16(width: int) -> Tensor:
    return Tensor(shape=[None, width], dtype=BF16)
