"""Greedy and drawn tokens: ties, cuts, seeds, and rows that are not numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.config.schema import InputConfig
from vpp_ms.engine.sampler import Sampler
from vpp_ms.errors import RequestError

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
rows = st.lists(st.integers(-40, 40), min_size=1, max_size=60).map(
    lambda values: np.array(values, np.float32) / 4
)


def draws(sampler: Sampler, logits_V: np.ndarray, count: int) -> np.ndarray:
    return np.array([sampler.sample(logits_V, "a", position) for position in range(count)])


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert Sampler().sample(np.array([1, 3, 3, 2], np.float32), "a", 0) == 1


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_follow_the_tempered_softmax(temperature: float) -> None:
    sampler = Sampler(temperature=temperature, seed=3)
    expected = np.exp(LOGITS.astype(np.float64) / temperature)
    counts = np.bincount(draws(sampler, LOGITS, 4000), minlength=5)
    assert np.abs(counts / 4000 - expected / expected.sum()).max() < 0.03


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    assert set(draws(Sampler(temperature=1, top_k=2), LOGITS, 200)) == {1, 3}
    assert set(draws(Sampler(temperature=1, top_p=0.64), LOGITS, 200)) == {1, 3}
    assert set(draws(Sampler(temperature=1, top_p=0.66), LOGITS, 200)) == {1, 3, 4}
    assert set(draws(Sampler(temperature=1, top_p=0.01), LOGITS, 50)) == {1}
    assert set(draws(Sampler(temperature=1, top_k=9), LOGITS, 400)) == {0, 1, 2, 3, 4}


def test_a_cut_through_equals_keeps_the_lowest_ids() -> None:
    equal = np.zeros(8, np.float32)
    assert set(draws(Sampler(temperature=1, top_k=3), equal, 200)) == {0, 1, 2}
    assert set(draws(Sampler(temperature=1, top_p=0.5), equal, 200)) == {0, 1, 2, 3}


@given(rows, st.floats(0.01, 5), st.integers(0, 5), st.floats(0.01, 1), st.integers(-5, 5))
def test_a_draw_is_kept_by_the_cuts_and_repeats(
    logits_V: np.ndarray, temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    sampler = Sampler(temperature, top_k, top_p, seed)
    token = sampler.sample(logits_V, "a", 7)
    assert token == sampler.sample(logits_V.copy(), "a", 7)
    better = np.sum(logits_V > logits_V[token]) + np.sum(logits_V[:token] == logits_V[token])
    assert not top_k or better < top_k


@given(rows)
def test_no_temperature_is_too_small(logits_V: np.ndarray) -> None:
    assert Sampler(temperature=1e-300).sample(logits_V, "a", 0) in np.flatnonzero(
        logits_V == logits_V.max()
    )


def test_draws_depend_on_seed_request_and_position_alone() -> None:
    sampler = Sampler(temperature=5.0, seed=1)
    flat = np.zeros(1000, np.float32)
    alone = [sampler.sample(flat, "a", position) for position in range(5)]
    among_others = []
    for position in range(5):
        sampler.sample(flat, "b", position)
        among_others.append(sampler.sample(flat, "a", position))
    assert alone == among_others and len(set(alone)) == 5
    assert alone[0] != sampler.sample(flat, "b", 0)
    assert alone[0] != Sampler(temperature=5.0, seed=2).sample(flat, "a", 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_its_request(bad: float, temperature: float) -> None:
    logits_V = LOGITS.copy()
    logits_V[2] = bad
    with pytest.raises(RequestError, match="request a: logits are not finite at output token 4"):
        Sampler(temperature=temperature).sample(logits_V, "a", 4)


def test_settings_come_from_the_input_section() -> None:
    config = InputConfig(temperature=0.7, top_k=5, top_p=0.9)
    assert Sampler.of(config, 11) == Sampler(0.7, 5, 0.9, 11)
