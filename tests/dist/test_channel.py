"""`P2PChannel` between three real ranks; one session serves all tests of this file."""

from __future__ import annotations

from pathlib import Path

import pytest

from vpp_ms.engine.launch import launch

TRAFFIC = str(Path(__file__).parent / "workers/traffic.py")


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> list[dict]:
    """What the ranks reported. The session's own assertions are exactness and order."""
    events: list[dict] = []
    directory = tmp_path_factory.mktemp("traffic")
    launch(
        [TRAFFIC, str(directory)],
        num_ranks=3,
        log_dir=directory / "log",
        timeout_s=120,
        on_event=events.append,
    )
    return events


def of(figures: list[dict], check: str) -> list[dict]:
    found = [figure for figure in figures if figure["check"] == check]
    assert found, f"no rank reported {check}"
    return found


def test_every_route_of_every_placement_counts_its_bytes_exactly(figures):
    meters = of(figures, "meter")
    # plain: 2 hops and the return; loop, v = 2: 5 hops and the return; v: 4 hops, no return
    assert {
        kind: len([m for m in meters if m["placement"] == kind]) for kind in ("plain", "loop", "v")
    } == {"plain": 3, "loop": 6, "v": 4}
    for meter in meters:
        assert meter["messages"] == 27
        assert meter["bytes"] == meter["expected_bytes"] > 2_000_000


def test_views_arrive_exactly(figures):
    assert len(of(figures, "views")) == 3


def test_sending_does_not_wait_for_a_stalled_receiver(figures):
    (stalled,) = of(figures, "stalled")
    assert stalled["sending_s"] < 0.75
    assert 0 < stalled["metered_s"] <= stalled["sending_s"]


def test_receiving_overlaps_computing(figures):
    (overlap,) = of(figures, "overlap")
    assert overlap["inside"] == 5


def test_waiting_costs_no_cpu(figures):
    for idle in of(figures, "idle"):
        assert idle["cpu_share"] < 0.05
