"""Random placements with random costs [n, S], and their walk: shared by the tests here."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.walk import walk


@st.composite
def placements(draw, max_ranks=5, max_sweeps=4):
    kind = draw(st.sampled_from(["plain", "loop", "v"]))
    sweeps = 1 if kind == "plain" else draw(st.integers(1, max_sweeps))
    return Placement(kind, draw(st.integers(1, max_ranks)), sweeps)


@st.composite
def problems(draw, max_n=10):
    placement = draw(placements())
    n = draw(st.integers(0, max_n))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    costs_nS = rng.choice([0.0, 0.5, 1.0, 2.0, 3.7], size=(n, placement.num_stages))
    return placement, costs_nS


def solve(placement, costs_nS, order="best", **keys):
    batches = prioritize(placement, [()] * len(costs_nS), costs_nS, order)
    return walk(placement, batches, costs_nS, **keys)
