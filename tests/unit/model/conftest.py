"""Tiny models on this process's CPU; graphs are compiled once per model and shared by all tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tiny_models import SPECS, Model

from vpp_ms.model.weights import random_weights


@pytest.fixture(scope="session", autouse=True)
def _set_up(cpu: None) -> None:
    """Before any test touches a tensor."""


@pytest.fixture(scope="session")
def model() -> Callable[[str], Model]:
    from vpp_ms.model.bank import LayerBank

    made: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in made:
            source = random_weights(SPECS[name], seed=1)
            made[name] = Model(SPECS[name], source, LayerBank(SPECS[name], source))
        return made[name]

    return get


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
