"""`Stage`: one virtual stage of the model on this process's device, a `StageCompute`.

Letters: T tokens, H hidden, R sampled rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import RequestError
from vpp_ms.model.bank import LayerBank
from vpp_ms.model.rope import RotaryTable
from vpp_ms.model.weights import WeightSource
from vpp_ms.model.worklist import DEFAULT_LIMITS, TileLimits, WorkPlanner
from vpp_ms.schedule.actions import MicroBatch, Segment


class Stage:
    """Layers [first_layer, end_layer), with the embedding if first and the head if last.

    With `turns` only those layers run that are the turn's of the micro-batch's requests, see
    `plan.turns`.

    `weights`: a source, or a bank that several stages of this process share: its weights are
    held once and its graphs compiled once. A layer is computed by the same graphs in the same
    order whatever stage it is in, so the split into stages does not change a bit of the result.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        stage: int,
        first_layer: int,
        end_layer: int,
        is_first: bool,
        is_last: bool,
        weights: LayerBank | WeightSource,
        num_blocks: int,
        block_size: int,
        limits: TileLimits = DEFAULT_LIMITS,
        turns: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.stage = stage
        self._spec, self._is_first, self._is_last = spec, is_first, is_last
        self._bank = weights if isinstance(weights, LayerBank) else LayerBank(spec, weights)
        self._ops = self._bank.ops
        self._layers = range(first_layer, end_layer)
        self._turns = [range(*turn) for turn in turns] or [self._layers]
        self._weights = {layer: self._bank.layer(layer) for layer in self._layers}
        self._embedding = self._bank.embedding() if is_first else None
        self._final = (self._bank.final_norm(), self._bank.head()) if is_last else None
        self.kv = self._ops.new_store(self._layers, num_blocks, block_size)
        self._rotary = RotaryTable(spec)
        self._planner = WorkPlanner(
            num_heads=spec.num_heads,
            block_size=block_size,
            null_block=self.kv.null_block,
            window=spec.sliding_window,
            limits=limits,
        )

    def run(self, micro_batch: MicroBatch, payload: Any) -> Any | None:
        """Token ids int32 [T] or hidden states [T, H] to hidden states [T, H], or from the last
        stage float32 logits [R, V] as numpy, None when R = 0.

        Raises RequestError for a position or token id out of the model's range.
        """
        work = self._planner.plan(micro_batch.segments)
        tables = self._rotary(work.positions_T)
        layers = self._turns[micro_batch.segments[0].request % len(self._turns)]
        x_TH = self._embed(payload) if self._is_first else payload
        y_TH = self._through(layers, x_TH, self._ops.batch(work, self.kv, *tables))
        if not self._ops.is_finite(y_TH):
            y_TH = self._through(layers, x_TH, self._ops.batch(work, self.kv, *tables, exact=True))
        if self._final is None:
            return y_TH
        if not work.samples_R.size:
            return None
        return self._ops.head(y_TH, work.samples_R, *self._final).float().asnumpy()

    def _through(self, layers: range, x_TH: Tensor, batch: Any) -> Tensor:
        for layer in layers:
            kind, pages = self._spec.layer_kind(layer), self.kv.pages(layer)
            x_TH = self._ops.layer(kind, x_TH, batch, pages, self._weights[layer])
        return x_TH

    def example_payload(self, num_tokens: int) -> Tensor:
        """Zeros: token ids int32 [T] for the first stage, else hidden states [T, H]."""
        shape = (num_tokens,) if self._is_first else (num_tokens, self._spec.hidden_size)
        return Tensor.from_numpy(np.zeros(shape, np.int32 if self._is_first else np.float32))

    def warm_up(self) -> None:
        """Compile and touch all that the first real call would pay for. Writes KV block 0."""
        for kind, layer in self._one_of_each_kind():
            self._ops.warm_up(kind, self.kv.pages(layer), self._weights[layer])
        self._touch_token(0)
        with self._ops.pinning():
            self._touch_token(1)

    def _touch_token(self, position: int) -> None:
        """A micro-batch of one token through one layer of each kind."""
        segment = Segment(-1, position, 1, sample=True, blocks=(0,) * (position + 1))
        work = self._planner.plan([segment])
        batch = self._ops.batch(work, self.kv, *self._rotary(work.positions_T))
        payload = self.example_payload(1)
        x_TH = self._embed(payload) if self._is_first else payload
        for kind, layer in self._one_of_each_kind():
            x_TH = self._ops.layer(kind, x_TH, batch, self.kv.pages(layer), self._weights[layer])
        if self._final is not None:
            self._ops.head(x_TH, work.samples_R, *self._final)

    def _one_of_each_kind(self) -> list[tuple[str, int]]:
        return list({self._spec.layer_kind(layer): layer for layer in self._layers}.items())

    def _embed(self, payload: np.ndarray | Tensor) -> Tensor:
        ids_T = payload.asnumpy() if isinstance(payload, Tensor) else np.asarray(payload)
        for token in (int(ids_T.min()), int(ids_T.max())):
            if not 0 <= token < self._spec.vocab_size:
                raise RequestError("token id", token, allowed=f"0 to {self._spec.vocab_size - 1}")
        return self._ops.embed(ids_T, self._embedding)
