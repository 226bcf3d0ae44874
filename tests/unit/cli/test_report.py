"""`vpp-ms report`: the files it writes, and one line for what it cannot read."""

from __future__ import annotations

import pytest

from tests.unit.trace.report_runs import simulated, write_comparison, write_run
from vpp_ms.cli.main import BAD_INPUT, DONE, run_cli


def test_the_page_and_the_pictures(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    both = write_comparison(tmp_path / "both")
    out, png = tmp_path / "new/report.html", tmp_path / "png"
    assert run_cli(["report", str(both), "--out", str(out), "--png", str(png)]) == DONE
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    said = capsys.readouterr().out
    assert f"report: {out}" in said and f"picture: {png / 'gantt.png'}" in said
    assert {path.name for path in png.iterdir()} == {
        "bubble.png", "gantt.png", "chunks.png", "prediction.png",
    }  # fmt: skip


def test_report_html_is_the_default(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", simulated())
    monkeypatch.chdir(tmp_path)
    assert run_cli(["report", str(run)]) == DONE
    assert (tmp_path / "report.html").exists()


def test_what_cannot_be_read_is_one_line_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "report.html"
    good = write_run(tmp_path / "run", simulated())
    other = write_run(tmp_path / "other", simulated(model="m2"))
    for runs, part in (
        ([tmp_path / "gone"], "gone: no such file or directory"),
        ([good, tmp_path], "neither trace.json nor compare.json"),
        ([good, other], "one report per model"),
        ([], "Missing argument"),
        ([good, "--out", tmp_path], f"{tmp_path}: is a directory"),
    ):
        arguments = [str(run) for run in runs]
        if "--out" not in arguments:
            arguments += ["--out", str(out)]
        assert run_cli(["report", *arguments]) == BAD_INPUT
        message = capsys.readouterr().err
        assert part in message and message.count("\n") == 1
    assert not out.exists()
