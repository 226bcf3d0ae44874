"""LayerBank: weights are checked by name, loaded once, and shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tiny_models import M0, SPECS, Model

from vpp_ms.errors import CheckpointError
from vpp_ms.model.weights import layer_shapes, random_weights

GetModel = Callable[[str], Model]


class Spoilt:
    """The tiny model's weights with one entry of layer 1 replaced or left out."""

    def __init__(self, key: str, value: np.ndarray | None) -> None:
        self._source, self._key, self._value = random_weights(M0), key, value

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def layer(self, layer: int) -> dict:
        weights = dict(self._source.layer(layer))
        del weights[self._key]
        return weights if self._value is None else weights | {self._key: self._value}


@pytest.mark.parametrize(
    ("key", "value", "got"),
    [("router", None, "missing"), ("o", np.zeros((32, 31), np.float32), r"\(32, 31\)")],
)
def test_a_bad_weight_is_named(key: str, value: np.ndarray | None, got: str) -> None:
    from vpp_ms.model.bank import LayerBank

    with pytest.raises(CheckpointError, match=f"layer 1: {key}: {got}; allowed: shape"):
        LayerBank(M0, Spoilt(key, value)).layer(1)


def test_stages_share_weights_and_tied_tables(model: GetModel) -> None:
    dense = model("dense").bank
    assert dense.layer(1) is dense.layer(1)
    assert dense.head() is dense.embedding()
    untied = model("qwen3_moe").bank
    assert untied.head() is not untied.embedding()
    assert untied.head() is untied.head()


@pytest.mark.parametrize("name", SPECS)
def test_random_weights_have_the_shapes_of_the_spec(name: str) -> None:
    spec = SPECS[name]
    source = random_weights(spec, seed=3)
    for layer in range(spec.num_layers):
        shapes = {key: array.shape for key, array in source.layer(layer).items()}
        assert shapes == layer_shapes(spec, layer)
    assert source.embedding().shape == source.head().shape == (97, 32)


def test_random_weights_depend_on_seed_and_layer_alone() -> None:
    shorter = replace(M0, num_layers=2)
    a, b = random_weights(M0, 5).layer(1), random_weights(shorter, 5).layer(1)
    assert all(np.array_equal(a[key], b[key]) for key in a)
    assert not np.array_equal(a["q"], random_weights(M0, 6).layer(1)["q"])
    assert not np.array_equal(a["q"], random_weights(M0, 5).layer(2)["q"])
