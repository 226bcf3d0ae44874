"""The latency fit: right where the data carry it, a reason where they do not."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.plan.latency import LatencyModel, fit_latency

BASE = 1024
SIZES = [int(BASE * f) for f in (1.25, 1.125, 1.0, 0.875, 0.75, 0.625, 0.5)]
TRUE = LatencyModel(a=2e-6, b=0.02, c=3.0)


def test_the_fit_finds_the_model_behind_clean_samples():
    fit = fit_latency(SIZES, [TRUE.time_of(0, x) for x in SIZES], BASE)
    assert fit.reason is None
    assert fit.model is not None
    assert fit.model.a == pytest.approx(TRUE.a, rel=1e-6)
    assert fit.model.b == pytest.approx(TRUE.b, rel=1e-6)
    assert fit.model.c == pytest.approx(TRUE.c, rel=1e-6)
    assert fit.residual < 1e-9


def test_prefixes_let_it_find_the_prefix_term():
    true = LatencyModel(a=2e-6, b=0.02, c=3.0, gamma=0.001)
    samples = [(start, x) for start in (0, 2000, 8000) for x in SIZES]
    fit = fit_latency(
        [x for _, x in samples],
        [true.time_of(start, x) for start, x in samples],
        BASE,
        [start for start, _ in samples],
    )
    assert fit.model is not None
    assert fit.model.gamma == pytest.approx(true.gamma, rel=1e-6)


def test_tiny_first_prompts_do_not_poison_the_fit():
    sizes = [1, 1, 1, *SIZES]
    times = [500.0, 400.0, 450.0, *(TRUE.time_of(0, x) for x in SIZES)]
    assert fit_latency(sizes, times, BASE) == fit_latency(SIZES, times[3:], BASE)


@pytest.mark.parametrize(
    ("sizes", "times", "says"),
    [
        (SIZES, [float(x) for x in reversed(SIZES)], "cost no more|falls|does not grow"),
        (SIZES, [5.0] * len(SIZES), "does not grow|cost no more|costs no more"),
        (SIZES, [x**0.5 for x in SIZES], "does not grow"),
        (SIZES[:3], [1.0, 2.0, 3.0], "usable latency samples"),
        ([1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0], "usable latency samples"),
        ([BASE] * 9, [1.0] * 9, "usable latency samples"),
        (SIZES, [float("nan")] * len(SIZES), "usable latency samples"),
        (SIZES, [0.0] * len(SIZES), "usable latency samples"),
        ([], [], "usable latency samples"),
        (SIZES, [90.0, 5.0, 80.0, 2.0, 1.0, 9.0, 0.5], "scatter"),
    ],
)
def test_bad_data_give_a_reason_and_no_model(sizes, times, says):
    fit = fit_latency(sizes, times, BASE)
    assert fit.model is None
    assert fit.reason is not None
    assert re.search(says, fit.reason), fit.reason


@pytest.mark.parametrize("seed", range(20))
def test_with_noise_the_model_is_near_or_refused(seed):
    noise = random.Random(seed)
    sizes = SIZES * 5
    times = [TRUE.time_of(0, x) * noise.uniform(0.98, 1.02) for x in sizes]
    fit = fit_latency(sizes, times, BASE)
    assert (fit.model is None) == (fit.reason is not None)
    if fit.model is not None:
        assert fit.model.time_of(0, BASE) == pytest.approx(TRUE.time_of(0, BASE), rel=0.02)
        assert fit.model.a == pytest.approx(TRUE.a, rel=2.0)


def test_growth_lost_in_the_noise_is_refused():
    noise = random.Random(1)
    sizes = SIZES * 5
    times = [(3.0 + 0.02 * x + 1e-9 * x * x) * noise.uniform(0.95, 1.05) for x in sizes]
    fit = fit_latency(sizes, times, BASE)
    assert fit.model is None
    assert re.search("lost in the noise|does not grow", fit.reason or "")


@given(st.lists(st.tuples(st.integers(0, 4096), st.floats()), max_size=40))
def test_no_data_make_it_raise(samples):
    fit = fit_latency([x for x, _ in samples], [t for _, t in samples], BASE)
    assert (fit.model is None) == (fit.reason is not None)


@given(
    start=st.integers(0, 1 << 20),
    size=st.integers(1, 1 << 16),
    a=st.floats(1e-12, 1e-3),
    b=st.floats(0, 1),
)
def test_size_for_inverts_time_of(start, size, a, b):
    model = LatencyModel(a, b, 0.5)
    assert model.size_for(start, model.time_of(start, size)) == pytest.approx(size, rel=1e-3)
