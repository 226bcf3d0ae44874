"""`CostModel`: predicted time of one stage for one micro-batch.

Shapes: n micro-batches, S stages, F the features below. The model is linear in five features of
a micro-batch, so a stage is a weight vector and all costs of a plan are one product
x_nF @ w_FS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.plan.flops import head_flops, layer_flops

FEATURES = ("launch", "token", "pair", "prefix_token", "sample")


class SegmentLike(Protocol):
    """`length` tokens of one request after `start` cached ones."""

    @property
    def request(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def sample(self) -> bool: ...


class HasLayers(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def first_layer(self) -> int: ...
    @property
    def end_layer(self) -> int: ...
    @property
    def is_first(self) -> bool: ...
    @property
    def is_last(self) -> bool: ...


class HasTurns(HasLayers, Protocol):
    @property
    def num_turns(self) -> int: ...
    def layers_of(self, request: int) -> range: ...


@dataclass(frozen=True)
class PartCost:
    """Seconds (or relative units) of one part of the model: a layer, the embedding, the head.

    A query token attends to all tokens up to itself: x tokens after a prefix of L make
    x (2 L + x) / 2 pairs. `prefix_token_s` is paid per cached token whatever x is (MLA's
    up-projection of the latent); `sample_s` per row of logits.
    """

    launch_s: float = 0.0
    token_s: float = 0.0
    pair_s: float = 0.0
    prefix_token_s: float = 0.0
    sample_s: float = 0.0

    @property
    def weights_F(self) -> np.ndarray:
        return np.array(
            [self.launch_s, self.token_s, self.pair_s, self.prefix_token_s, self.sample_s]
        )


def features_F(segments: Iterable[SegmentLike]) -> np.ndarray:
    """One micro-batch's features. A prefix hit counts with its true length."""
    tokens = pairs = prefix = samples = 0
    for segment in segments:
        tokens += segment.length
        pairs += segment.length * (2 * segment.start + segment.length)
        prefix += segment.start
        samples += segment.sample
    return np.array([1.0, tokens, pairs / 2, prefix, samples])


def features_nF(segment_lists: Sequence[Sequence[SegmentLike]]) -> np.ndarray:
    """Features of many micro-batches."""
    rows = [features_F(segments) for segments in segment_lists]
    return np.array(rows).reshape(len(rows), len(FEATURES))


def messages_of(stages: Sequence[HasLayers]) -> list[int]:
    """Of each stage: how many of its neighbours, 0 to 2, are on another rank."""
    crossings = [False, *(a.rank != b.rank for a, b in pairwise(stages)), False]
    return [before + behind for before, behind in pairwise(crossings)]


class StageCosts:
    """Predicted times of all stages of one plan; `weights_TSF` has an entry for each turn.

    A micro-batch's requests all have the same turn.
    """

    def __init__(self, weights_TSF: np.ndarray) -> None:
        self._weights_TFS = weights_TSF.transpose(0, 2, 1)

    def __call__(self, segments: Sequence[SegmentLike]) -> tuple[float, ...]:
        """One micro-batch's time on each stage, [S]."""
        weights_FS = self._weights_TFS[segments[0].request % len(self._weights_TFS)]
        return tuple((features_F(segments) @ weights_FS).tolist())

    def table(self, segment_lists: Sequence[Sequence[SegmentLike]]) -> np.ndarray:
        """All micro-batches on all stages, [n, S]."""
        requests = [segments[0].request for segments in segment_lists]
        return self.of_features(features_nF(segment_lists), requests)

    def of_features(self, x_nF: np.ndarray, requests: Sequence[int]) -> np.ndarray:
        """The same from features and each micro-batch's first request, [n, S]."""
        num_turns = len(self._weights_TFS)
        if num_turns == 1:
            return x_nF @ self._weights_TFS[0]
        weights_nFS = self._weights_TFS[np.asarray(requests, int) % num_turns]
        return np.einsum("nf,nfs->ns", x_nF, weights_nFS)


@dataclass(frozen=True)
class CostModel:
    """`layers` has one PartCost per layer kind; `layer_kinds[i]` is layer i's kind.

    Besides its layers a stage pays `stage` once, and `message` at each end whose neighbour is on
    another rank: what sending or taking in costs the device's own time.
    """

    layers: Mapping[str, PartCost]
    layer_kinds: tuple[str, ...]
    embedding: PartCost = PartCost()
    head: PartCost = PartCost()
    stage: PartCost = PartCost()
    message: PartCost = PartCost()

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        flops_per_s: float = 1e12,
        layer_launch_s: float = 0.0,
        stage_launch_s: float = 0.0,
    ) -> CostModel:
        """Counts the FLOPs of the matrix products, see `plan.flops`.

        Without a measured `flops_per_s` times are relative: one unit per TFLOP.
        """
        kinds = tuple(spec.layer_kind(layer) for layer in range(spec.num_layers))
        layers = {}
        for kind in dict.fromkeys(kinds):
            flops = layer_flops(spec, kind)
            layers[kind] = PartCost(
                launch_s=layer_launch_s,
                token_s=flops.token / flops_per_s,
                pair_s=flops.pair / flops_per_s,
                prefix_token_s=flops.prefix_token / flops_per_s,
            )
        return cls(
            layers=layers,
            layer_kinds=kinds,
            embedding=PartCost(token_s=2.0 * spec.hidden_size / flops_per_s),
            head=PartCost(sample_s=head_flops(spec) / flops_per_s),
            stage=PartCost(launch_s=stage_launch_s),
        )

    def stage_weights_F(
        self, layers: Iterable[int], *, is_first: bool = False, is_last: bool = False
    ) -> np.ndarray:
        """Feature weights of a stage with these layers."""
        weights = self.stage.weights_F
        for layer in layers:
            weights += self.layers[self.layer_kinds[layer]].weights_F
        if is_first:
            weights += self.embedding.weights_F
        if is_last:
            weights += self.head.weights_F
        return weights

    def stage_time_s(
        self,
        layers: Iterable[int],
        segments: Iterable[SegmentLike],
        *,
        is_first: bool = False,
        is_last: bool = False,
    ) -> float:
        """Predicted time of one micro-batch on one stage."""
        weights_F = self.stage_weights_F(layers, is_first=is_first, is_last=is_last)
        return float(features_F(segments) @ weights_F)

    def for_stages(self, stages: Sequence[HasTurns]) -> StageCosts:
        """The costs of a plan's stages, made once and asked per micro-batch."""
        messages = messages_of(stages)
        turns = range(max((stage.num_turns for stage in stages), default=1))
        return StageCosts(
            np.array(
                [
                    [
                        self.stage_weights_F(
                            stage.layers_of(turn), is_first=stage.is_first, is_last=stage.is_last
                        )
                        + num_messages * self.message.weights_F
                        for stage, num_messages in zip(stages, messages, strict=True)
                    ]
                    for turn in turns
                ]
            )
        )

    def layer_costs(self, start: int, length: int) -> tuple[float, ...]:
        """Each layer's time for one typical chunk: what a balanced partition weighs."""
        x_F = np.array([1.0, length, length * (start + length / 2), start, 0.0])
        of_kind = {kind: float(x_F @ part.weights_F) for kind, part in self.layers.items()}
        return tuple(of_kind[kind] for kind in self.layer_kinds)

    def latency_terms(self) -> tuple[float, float, float, float]:
        """a, b, c, gamma of the whole model's c + gamma L + b x + a (2 L x + x^2)."""
        launch, token, pair, prefix, _ = self.stage_weights_F(
            range(len(self.layer_kinds)), is_first=True
        )
        return float(pair / 2), float(token), float(launch), float(prefix)
