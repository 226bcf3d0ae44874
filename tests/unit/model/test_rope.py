"""Rotary tables: formulas, both ends of the range, and that scaling is applied once."""

from __future__ import annotations

import numpy as np
import pytest

from vpp_ms.config.model_spec import ModelSpec, RopeSpec
from vpp_ms.errors import ConfigError, RequestError
from vpp_ms.model.rope import RotaryTable

LLAMA3 = RopeSpec(
    500_000.0, "llama3", 8.0, 64, (("high_freq_factor", 4.0), ("low_freq_factor", 1.0))
)
YARN = RopeSpec(10_000.0, "yarn", 4.0, 32)
# Angles per position at head_dim 16, as Transformers 5.24 computes them (modeling_rope_utils).
GOLDEN = {
    LLAMA3: "1 0.079403013 0.0047007538 0.00091158313 "
    "0.00017677668 3.4281024e-5 6.6478697e-6 1.2891732e-6",
    YARN: "1 0.19764236 0.025 0.0079056947 0.0025 0.00079056947 0.00025000001 7.9056947e-5",
}
YARN_SCALE = 1.138629436


def spec(rope: RopeSpec, max_position: int = 128, head_dim: int = 16) -> ModelSpec:
    return ModelSpec("x", 1, 32, 2, 2, head_dim, 97, 48, max_position, rope=rope)


@pytest.mark.parametrize("rope", GOLDEN, ids=lambda r: r.kind)
def test_scaled_frequencies_equal_transformers(rope: RopeSpec) -> None:
    cos, sin = RotaryTable(spec(rope))(np.array([1]))
    scale = YARN_SCALE if rope is YARN else 1.0
    angles = np.arctan2(sin[0, 8:], cos[0, 8:])
    np.testing.assert_allclose(angles, np.fromstring(GOLDEN[rope], sep=" "), rtol=2e-6)
    np.testing.assert_allclose(np.hypot(cos, sin), scale, rtol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_linear_scaling_slows_positions_down(factor: float) -> None:
    plain, scaled = (
        RotaryTable(spec(RopeSpec())),
        RotaryTable(spec(RopeSpec(1e4, "linear", factor))),
    )
    for a, b in zip(plain(np.arange(32)), scaled(np.arange(32) * int(factor)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_rotation_depends_on_the_distance_alone() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 16))

    def rotated(x: np.ndarray, position: int) -> np.ndarray:
        cos, sin = RotaryTable(spec(RopeSpec()))(np.array([position]))
        return x * cos[0] + np.roll(x, 8) * sin[0]

    near, far = rotated(q, 7) @ rotated(k, 3), rotated(q, 104) @ rotated(k, 100)
    assert near == pytest.approx(far, abs=1e-5)
    assert near != pytest.approx(rotated(q, 7) @ rotated(k, 4), abs=1e-3)


def test_yarn_reaches_past_the_original_length_and_stops_at_the_models() -> None:
    table = RotaryTable(spec(YARN))
    assert np.isfinite(table(np.array([31, 32, 127]))[0]).all()
    with pytest.raises(RequestError, match="position: 128; allowed: < 128"):
        table(np.array([5, 128]))


def test_attention_factor_and_mscale_are_honoured() -> None:
    for params, scale in (
        ((("attention_factor", 1.25),), 1.25),
        ((("mscale", 1.0), ("mscale_all_dim", 1.0)), 1.0),
    ):
        cos, sin = RotaryTable(spec(RopeSpec(1e4, "yarn", 4.0, 32, params)))(np.array([9]))
        np.testing.assert_allclose(np.hypot(cos, sin), scale, rtol=1e-6)


def test_dynamic_scaling_is_default_within_the_original_length_and_refused_beyond() -> None:
    """Beyond it the frequencies depend on the whole prompt's length, which no chunk knows."""
    table = RotaryTable(spec(RopeSpec(1e4, "dynamic", 2.0, 64)))
    for a, b in zip(
        table(np.arange(64)), RotaryTable(spec(RopeSpec()))(np.arange(64)), strict=True
    ):
        assert (a == b).all()
    with pytest.raises(RequestError, match="64"):
        table(np.array([64]))


@pytest.mark.parametrize("bad", [spec(RopeSpec(1e4, "longrope")), spec(RopeSpec(), head_dim=15)])
def test_what_is_not_known_is_refused(bad: ModelSpec) -> None:
    with pytest.raises(ConfigError):
        RotaryTable(bad)
