"""The trace file: opens as a Chrome trace, a track per rank and link, reads back without loss."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.errors import VppError
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.policy import prioritize
from vpp_ms.schedule.walk import Hop, walk
from vpp_ms.trace import Event, Trace, read_trace, to_perfetto, trace_of_walk, write_trace
from vpp_ms.trace.events import COMPUTE, RECV


def simulated():
    placement = Placement("v", 2, 2)
    costs_nS = np.full((6, 4), 0.1)
    batches = prioritize(placement, [()] * 6, costs_nS, "best")
    run = walk(placement, batches, costs_nS, hop_of=lambda link, mb: Hop(latency_s=0.35))
    return trace_of_walk(run, meta={"method": "vpp"})


def tracks(document):
    return {
        (r["pid"], r["tid"]): r["args"]["name"]
        for r in document["traceEvents"]
        if r["name"] == "thread_name"
    }


def test_every_rank_and_every_link_has_a_named_track():
    names = set(tracks(to_perfetto(simulated())).values())
    assert {"rank 0", "rank 1"} <= names
    assert "stage 0: rank 0 to 1, recv" in names
    assert "stage 2: rank 1 to 0, recv" in names
    groups = {
        r["args"]["name"]
        for r in to_perfetto(simulated())["traceEvents"]
        if r["name"] == "process_name"
    }
    assert groups == {"ranks (simulated)", "links (simulated)"}


def test_spans_on_one_track_never_overlap():
    """Perfetto draws spans that overlap without nesting wrongly: they need lanes."""
    document = to_perfetto(simulated())
    by_track = defaultdict(list)
    for record in document["traceEvents"]:
        if record["ph"] == "X":
            by_track[record["pid"], record["tid"]].append((record["ts"], record["dur"]))
    assert set(by_track) <= set(tracks(document))
    for spans in by_track.values():
        for (start, duration), (next_start, _) in pairwise(sorted(spans)):
            assert start + duration <= next_start + 1e-6
    assert any("(2)" in name for name in tracks(document).values())


def test_a_span_says_what_ran_in_microseconds():
    document = to_perfetto(Trace(1, (Event(COMPUTE, 0, 3, 7, 0.5, 0.75),)))
    (span,) = [r for r in document["traceEvents"] if r["ph"] == "X"]
    assert (span["name"], span["ts"], span["dur"]) == ("stage 3, micro-batch 7", 5e5, 2.5e5)


times = st.floats(0, 1e4)
events = st.builds(
    Event,
    st.sampled_from(["compute", "send", "recv", "wait"]),
    st.integers(0, 3),
    st.integers(-1, 15),
    st.integers(-1, 99),
    times,
    times,
    st.integers(0, 1 << 40),
    st.integers(-1, 3),
)


@given(st.lists(events, max_size=20))
def test_the_file_reads_back_without_loss(tmp_path_factory, found):
    ordered = sorted(found, key=lambda e: (e.start_s, e.rank))
    trace = Trace(4, tuple(ordered), meta={"plan_hash": "ab"})
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    write_trace(trace, path)
    again = read_trace(path)
    assert sorted(again.events) == sorted(trace.events)
    assert (again.num_ranks, again.origin, again.meta) == (4, trace.origin, trace.meta)
    json.loads(path.read_text())


def test_what_is_no_trace_is_one_clear_error(tmp_path):
    with pytest.raises(VppError, match="No such file"):
        read_trace(tmp_path / "none.json")
    for text in ("", "{}", "[]", '{"traceEvents": 3, "otherData": {"num_ranks": 1}}'):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(VppError, match=r"not a trace"):
            read_trace(path)


def test_receives_last_as_long_as_the_message_was_on_its_way():
    assert {round(e.duration_s, 9) for e in simulated().of(RECV)} == {0.35}
