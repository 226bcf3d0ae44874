"""What a comparison says of its rounds."""

from __future__ import annotations

import pytest

from vpp_ms.engine.results import compare


def one(tokens_per_s: float, steady: float | None = 0.1) -> dict:
    return {
        "origin": "measured",
        "makespan_s": 100 / tokens_per_s,
        "tokens_per_s": tokens_per_s,
        "bubble_ratio": 0.2,
        "bubble_ratio_steady": steady,
        "placement": "v",
        "virtual_stages": 2,
        "chunks": [50, 50],
        "plan_hash": "0",
    }


def test_medians_and_ratios_round_by_round() -> None:
    """A machine that slows down by half between rounds does not change who is faster."""
    result = compare({"a": [one(10), one(5), one(8)], "b": [one(12), one(6), one(8)]})
    assert (result["origin"], result["rounds"]) == ("measured", 3)
    assert result["methods"]["a"]["median"]["tokens_per_s"] == 8
    assert result["methods"]["a"]["ratio_to_first"] == 1.0
    assert result["methods"]["a"]["placement"] == "v"
    assert result["methods"]["b"]["ratio_to_first"] == pytest.approx(1.2)
    assert [r["tokens_per_s"] for r in result["methods"]["b"]["rounds"]] == [12, 6, 8]


def test_runs_too_short_for_a_steady_part() -> None:
    result = compare({"a": [one(10, None), one(10, 0.3), one(10, 0.1)], "b": [one(10, None)] * 3})
    assert result["methods"]["a"]["median"]["bubble_ratio_steady"] == pytest.approx(0.2)
    assert result["methods"]["b"]["median"]["bubble_ratio_steady"] is None
