"""`LayerBank`: a process's weights on the device, loaded once and shared by all its stages.

Letters: H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import CheckpointError
from vpp_ms.model.ops import op_set
from vpp_ms.model.ops.base import LayerWeights
from vpp_ms.model.weights import WeightSource, layer_shapes


class LayerBank:
    """Weights by layer, read from `source` when first asked for.

    Raises CheckpointError for a missing or misshapen weight.
    """

    def __init__(self, spec: ModelSpec, source: WeightSource) -> None:
        self.spec = spec
        self.ops = op_set(spec, ms.get_context("device_target"))
        self._source = source
        self._layers: dict[int, LayerWeights] = {}
        self._shared: dict[str, Parameter] = {}

    def layer(self, layer: int) -> LayerWeights:
        if layer not in self._layers:
            arrays = self._source.layer(layer)
            _check(arrays, layer_shapes(self.spec, layer), f"layer {layer}")
            self._layers[layer] = _fuse(self.spec, arrays, layer, self.ops.dtype)
        return self._layers[layer]

    def embedding(self) -> Parameter:
        """[V, H]"""
        return self._once("embedding", self._source.embedding)

    def final_norm(self) -> Parameter:
        """[1, H]"""
        return self._once("final_norm", lambda: self._source.final_norm()[None])

    def head(self) -> Parameter:
        """[V, H]; the embedding itself when they are tied."""
        if self.spec.tied_embeddings:
            return self.embedding()
        return self._once("head", self._source.head)

    def _once(self, name: str, read: Callable[[], np.ndarray]) -> Parameter:
        if name not in self._shared:
            vocab, hidden = self.spec.vocab_size, self.spec.hidden_size
            shape = (1, hidden) if name == "final_norm" else (vocab, hidden)
            array = read()
            _check({name: array}, {name: shape}, "model")
            self._shared[name] = _parameter(array, name, self.ops.dtype)
        return self._shared[name]


def _fuse(
    spec: ModelSpec, arrays: Mapping[str, np.ndarray], layer: int, dtype: ms.Type
) -> LayerWeights:
    attention = {
        "attn_norm": arrays["attn_norm"][None],
        "qkv": np.concatenate([arrays["q"], arrays["k"], arrays["v"]]).T,
    }
    if spec.attention_bias:
        biases = [arrays["q_bias"], arrays["k_bias"], arrays["v_bias"]]
        attention["qkv_bias"] = np.concatenate(biases)[None]
    if spec.qk_norm:
        norms = [arrays["q_norm"]] * spec.num_heads + [arrays["k_norm"]] * spec.num_kv_heads
        attention["qk_norm"] = np.concatenate(norms)[None]
    ffn = {"o": arrays["o"].T, "ffn_norm": arrays["ffn_norm"][None]}
    if "router" in arrays:
        ffn["router"] = arrays["router"].T
    ffn |= {name: arrays[name].swapaxes(-1, -2) for name in ("gate", "up", "down")}
    return LayerWeights(
        tuple(
            _parameter(array, f"layer{layer}.{name}", dtype) for name, array in attention.items()
        ),
        tuple(_parameter(array, f"layer{layer}.{name}", dtype) for name, array in ffn.items()),
    )


def _parameter(array: np.ndarray, name: str, dtype: ms.Type) -> Parameter:
    tensor = Tensor.from_numpy(np.ascontiguousarray(array, np.float32))
    tensor = tensor if dtype == ms.float32 else tensor.astype(dtype)
    return Parameter(tensor, name=name, requires_grad=False)


def _check(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    for name, shape in shapes.items():
        got = arrays[name].shape if name in arrays else "missing"
        if got != shape:
            raise CheckpointError(f"{where}: {name}", got, allowed=f"shape {shape}")
