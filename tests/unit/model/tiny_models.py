"""Tiny models, and micro-batches made by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from vpp_ms.config.model_spec import ModelSpec, MoESpec
from vpp_ms.model.weights import WeightSource
from vpp_ms.schedule.actions import MicroBatch, Segment

M0 = ModelSpec(
    family="qwen3_moe",
    num_layers=5,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=97,
    intermediate_size=48,
    max_position=128,
    qk_norm=True,
    moe=MoESpec(num_experts=8, top_k=2, intermediate_size=24),
)
SPECS = {
    "qwen3_moe": M0,
    "mixtral": replace(M0, num_layers=3, qk_norm=False, num_heads=6, rms_eps=1e-5),
    "windowed": replace(M0, num_layers=2, sliding_window=7, num_kv_heads=4),
    "dense": replace(
        M0, num_layers=3, qk_norm=False, moe=None, attention_bias=True, tied_embeddings=True
    ),
    "mixed": replace(M0, num_layers=3, dense_layers=(1,), moe=MoESpec(5, 3, 16, norm_topk=False)),
}
BLOCK_SIZE, NUM_BLOCKS = 4, 64


@dataclass
class Model:
    """One tiny model: its weights, its graphs, and micro-batches made by hand."""

    spec: ModelSpec
    source: WeightSource
    bank: object
    _index: int = field(default=0)

    def stage(self, first: int = 0, end: int | None = None, **options: object):
        from vpp_ms.model.stage import Stage

        end = self.spec.num_layers if end is None else end
        return Stage(
            self.spec,
            stage=0,
            first_layer=first,
            end_layer=end,
            is_first=first == 0,
            is_last=end == self.spec.num_layers,
            weights=self.bank,
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            **options,
        )

    def batch(self, *segments: Segment) -> MicroBatch:
        self._index += 1
        return MicroBatch(self._index, segments, (0.0,))

    def prefill(self, stages: list, ids: np.ndarray, blocks: tuple, parts: list[int]):
        """Logits of each part's last token [len(parts), V], through all stages in turn."""
        found, start = [], 0
        for length in parts:
            segment = Segment(0, start, length, True, blocks[: -(-(start + length) // BLOCK_SIZE)])
            payload, micro_batch = ids[start : start + length], self.batch(segment)
            for stage in stages:
                payload = stage.run(micro_batch, payload)
            found.append(payload[0])
            start += length
        return np.stack(found)
