"""Reading runs: directories of runs and comparisons, trace files, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.unit.trace.report_runs import simulated, write_comparison, write_run
from vpp_ms.errors import VppError
from vpp_ms.trace import Trace, write_trace
from vpp_ms.trace.report import load_runs


def test_a_run_a_comparison_and_a_trace_file(tmp_path):
    write_comparison(tmp_path / "both")
    write_run(tmp_path / "single", simulated(method="auto"))
    write_trace(simulated("loop", 2, method="loop"), tmp_path / "expected.json")
    paths = [tmp_path / "both", tmp_path / "single", tmp_path / "expected.json"]
    cpp, vpp, auto, loop = load_runs(paths)
    assert [run.name for run in (cpp, vpp, auto, loop)] == ["cpp", "vpp", "auto", "loop"]
    assert [run.trace.origin for run in (cpp, loop)] == ["measured", "simulated"]
    assert cpp.rounds == 3 and cpp.medians["makespan_s"] == 9.0 and not auto.medians
    assert cpp.prediction is not None and vpp.prediction is None
    assert auto.result["tokens_per_s"] == 123.0 and not loop.result


def test_names_that_occur_twice_are_told_apart(tmp_path):
    first = write_comparison(tmp_path / "monday")
    second = write_run(tmp_path / "tuesday", simulated())
    names = [run.name for run in load_runs([first, second, second])]
    assert names == ["cpp", "monday/vpp", "tuesday/vpp", "tuesday/vpp (2)"]


def test_older_traces_that_name_no_segments_and_no_model(tmp_path):
    trace = simulated()
    write_trace(Trace(2, trace.events, meta={"method": "vpp"}), tmp_path / "old.json")
    write_trace(trace, tmp_path / "new.json")
    old, _ = load_runs([tmp_path / "old.json", tmp_path / "new.json"])
    assert sorted(old.trace.events) == sorted(trace.events)


def refused(path, *parts, more=()):
    with pytest.raises(VppError) as caught:
        load_runs([path, *more])
    for part in parts:
        assert part in str(caught.value)


def test_what_is_missing(tmp_path):
    refused(tmp_path / "gone", "gone: no such file or directory", "vpp-ms compare")
    refused(tmp_path, "neither trace.json nor compare.json")
    run = write_run(tmp_path / "run", simulated())
    (run / "trace.json").unlink()
    refused(run, "run: no trace.json", "try: output.trace: true")
    both = write_comparison(tmp_path / "both")
    (both / "vpp/trace.json").unlink()
    refused(both, "both/vpp: no trace.json")


def test_what_is_corrupt(tmp_path):
    run = write_run(tmp_path / "run", simulated())
    text = (run / "trace.json").read_text()
    (run / "trace.json").write_text(text[: len(text) // 2])
    refused(run, "trace.json: not a trace of this program")
    (run / "trace.json").write_text(text)
    (run / "result.json").write_text("{")
    refused(run, "result.json: not JSON, or cut off")
    (run / "result.json").write_text("[]")
    refused(run, "result.json: not what a run wrote")
    (run / "result.json").write_text("{}")
    (run / "prediction.json").write_text("{}")
    refused(run, "prediction.json: not a trace of this program")
    both = write_comparison(tmp_path / "both")
    (both / "compare.json").write_text('{"methods": ["cpp"]}')
    refused(both, "compare.json: not a comparison of this program")


def test_what_does_not_belong_together(tmp_path):
    run = write_run(tmp_path / "run", simulated())
    other = write_run(tmp_path / "other", simulated(model="m2"))
    refused(run, "other: model m2", "allowed: m1", "one report per model", more=[other])
    (run / "result.json").write_text(json.dumps({"plan_hash": "another"}))
    refused(run, "trace.json is of plan v2, result.json of plan another")
    (run / "result.json").unlink()
    write_trace(simulated(num_ranks=4), run / "prediction.json")
    refused(run, "a prediction for 4 ranks", "allowed: 2")


def test_traces_that_say_nothing_or_nonsense(tmp_path):
    path = tmp_path / "trace.json"
    write_trace(Trace(2, ()), path)
    refused(path, "an empty trace")
    write_trace(Trace(1, simulated().events), path)
    refused(path, "events of more ranks than it says")
    write_trace(simulated(segments=[[["a", 0]]]), path)
    refused(path, "its segments, requests or arrivals cannot be read")
