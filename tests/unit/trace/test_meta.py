"""A trace tells of its run; one that does not is refused in one clear line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.sim.sim_problems import MOE, run_config
from vpp_ms.errors import VppError
from vpp_ms.plan.plan import fingerprint, make_plan
from vpp_ms.schedule.actions import MicroBatch, Segment
from vpp_ms.trace.events import Trace
from vpp_ms.trace.io import read_trace, write_trace
from vpp_ms.trace.meta import read_meta, run_meta

PLAN = make_plan(run_config(2, "vpp"), MOE, (900,))
SEGMENTS = ((Segment(0, 0, 512),), (Segment(0, 512, 388, True), Segment(1, 0, 3, True)))
BATCHES = [MicroBatch(i, segments, (0.0,) * 4) for i, segments in enumerate(SEGMENTS)]
TRACE = Trace(2, (), meta=run_meta(PLAN, BATCHES, ["a", "b"], [0.0, 1.5]))


def test_what_was_described_is_read_back_also_from_a_file(tmp_path):
    write_trace(TRACE, tmp_path / "trace.json")
    for trace in (TRACE, read_trace(tmp_path / "trace.json")):
        meta = read_meta(trace)
        assert (meta.method, meta.plan_hash) == ("vpp", PLAN.hash)
        assert meta.model == fingerprint(MOE)
        assert (meta.placement, meta.stages) == (PLAN.placement, PLAN.stages)
        assert meta.cargo.segments == SEGMENTS
        assert (meta.cargo.requests, meta.cargo.arrivals_s) == (("a", "b"), (0.0, 1.5))


@pytest.mark.parametrize("key", ["placement", "virtual_stages", "layers", "segments", "model"])
def test_a_trace_that_lacks_something_is_refused(key):
    meta = {name: value for name, value in TRACE.meta.items() if name != key}
    with pytest.raises(VppError, match=r"run/trace.json: does not say.*try: run again"):
        read_meta(replace(TRACE, meta=meta), "run/trace.json")


@pytest.mark.parametrize("changes", [{"placement": "star"}, {"layers": [[0, 3]]}, {"layers": 4}])
def test_a_trace_that_contradicts_itself_is_refused(changes):
    with pytest.raises(VppError, match="does not say"):
        read_meta(replace(TRACE, meta={**TRACE.meta, **changes}))
