"""The figures behind the pictures, the page that embeds them, and the PNG files."""

from __future__ import annotations

import builtins
import json
import math
import re
from dataclasses import replace

import pytest

from tests.unit.trace.report_runs import simulated, write_comparison
from vpp_ms.errors import VppError
from vpp_ms.trace import Trace, measure, write_trace
from vpp_ms.trace.causes import CAUSES
from vpp_ms.trace.events import EMULATED
from vpp_ms.trace.report import Figures, load_runs, render_page
from vpp_ms.trace.report.figures import Pair, median_error, pairs
from vpp_ms.trace.report.palette import CAUSES as COLOURS
from vpp_ms.trace.report.palette import WORDS
from vpp_ms.trace.report.pictures import write_pictures


def embedded(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found[1])


@pytest.fixture
def runs(tmp_path):
    return load_runs([write_comparison(tmp_path / "both")])


def test_every_cause_has_a_colour_and_words():
    assert set(COLOURS) == set(WORDS) == set(CAUSES)
    assert len(set(COLOURS.values())) == len(CAUSES)


def test_the_page_is_whole_and_asks_for_nothing(runs):
    page = render_page(runs)
    assert page.startswith("<!DOCTYPE html>") and "{{" not in page
    addresses = set(re.findall(r"https?://[^\"'\s)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name space, which nothing fetches"
    assert not re.search(r"<(link|img|iframe)\b|src=|@import|url\(", page)


def test_the_embedded_data_tell_what_the_trace_tells(runs):
    cpp, vpp = embedded(render_page(runs))["runs"]
    metrics = measure(runs[1].trace)
    assert vpp["origin"] == "measured" and vpp["layout"] == "v, 2 ranks x 2 stages"
    assert vpp["bubble"] == pytest.approx(metrics.bubble_ratio)
    idle_s = [
        end - start for start, end in zip(vpp["idle"]["start"], vpp["idle"]["end"], strict=True)
    ]
    whole_s = 2 * metrics.makespan_s
    assert sum(vpp["causes"]) == pytest.approx(sum(idle_s), rel=1e-5)
    assert sum(vpp["causes"]) + sum(vpp["busy"]) == pytest.approx(whole_s)
    assert min(vpp["compute"]["start"]) == 0.0
    assert max(vpp["compute"]["end"]) == pytest.approx(vpp["makespan"], rel=1e-6)
    assert len(vpp["compute"]["stage"]) == 8 * 4
    assert vpp["segments"][7] == [[0, 7168, 832]] and vpp["requests"] == ["prompt 0"]
    assert [chunk[2:4] for chunk in vpp["chunks"]][-1] == [7168, 832]
    assert sum(chunk[3] for chunk in vpp["chunks"]) == 8000
    assert math.fsum(chunk[4] for chunk in vpp["chunks"]) == pytest.approx(sum(vpp["busy"]) / 2)
    assert (cpp["rounds"], cpp["median"]["makespan_s"]) == (3, 9.0)


def test_a_prediction_is_set_against_the_run(runs):
    cpp, vpp = embedded(render_page(runs))["runs"]
    assert cpp["prediction"]["origin"] == "simulated" and len(cpp["pairs"]) == 8 * 2
    assert cpp["median_error"] == pytest.approx(0.1)
    assert "prediction" not in vpp
    predicted, actual = simulated(scale=2.0), simulated()
    found = pairs(predicted, Trace(2, actual.events[:10], meta=actual.meta))
    assert found and all(p.predicted_s == pytest.approx(2 * p.actual_s) for p in found)
    assert median_error([Pair(0, 0, 1.0, 0.0)]) is None


def test_a_name_cannot_break_out_of_the_data(tmp_path):
    name = "</script><script>alert(1)</script>{{style}}"
    write_trace(simulated(method=name), tmp_path / "trace.json")
    page = render_page(load_runs([tmp_path / "trace.json"]))
    assert embedded(page)["runs"][0]["name"] == name
    assert "<script>alert" not in page


def test_figures_without_segments_or_result():
    trace = simulated()
    known, unknown = Figures.of(trace), Figures.of(Trace(2, trace.events))
    assert known.prompt_tokens == 8000
    assert known.tokens_per_s == pytest.approx(8000 / known.metrics.makespan_s)
    assert (unknown.prompt_tokens, unknown.tokens_per_s, unknown.chunks) == (None, None, ())
    assert unknown.layout == "2 ranks x 2 stages"
    assert Figures.of(trace, {"tokens_per_s": 5.0, "prompt_tokens": 7}).tokens_per_s == 5.0


def test_the_verdict_names_causes_by_size():
    figures = Figures.of(simulated("plain", 1, 4, hop_s=0.0))
    shares = list(figures.shares.values())
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(figures.metrics.bubble_ratio, abs=1e-3)
    assert re.fullmatch(r"idle \d+\.\d %: drain [\d.]+ %, growth .*, fill .*", figures.verdict())
    assert Figures.of(simulated("plain", 1, 1)).verdict() == "never idle"


def test_pictures_for_papers(runs, tmp_path):
    pytest.importorskip("matplotlib")
    written = write_pictures(runs, tmp_path / "png")
    assert [path.name for path in written] == [
        "bubble.png", "gantt.png", "chunks.png", "prediction.png",
    ]  # fmt: skip
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    bare = [replace(run, trace=Trace(2, run.trace.events), prediction=None) for run in runs]
    assert len(write_pictures(bare, tmp_path / "bare")) == 2


def test_the_origin_is_in_every_picture(runs, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    from matplotlib.text import Text

    words = {}

    def keep(self, path, **keys):
        words[path.name] = " ".join(text.get_text() for text in self.findobj(Text))

    monkeypatch.setattr(figure.Figure, "savefig", keep)
    emulated = [replace(run, trace=replace(run.trace, origin=EMULATED)) for run in runs]
    write_pictures(emulated, tmp_path)
    assert len(words) == 4 and all("emulated" in text for text in words.values()), words


def test_without_matplotlib_the_page_still_works(runs, tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    render_page(runs)
    with pytest.raises(VppError, match=r"--png: matplotlib is not .*pip install matplotlib"):
        write_pictures(runs, tmp_path)
