"""What is shown while ranks work and at the end."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from vpp_ms.cli.live import LiveView, Phases, PlainView, show_progress
from vpp_ms.cli.tables import print_comparison, print_result
from vpp_ms.config import RunConfig

CONFIG = RunConfig(pretrained_model_dir="model", output_dir="out")  # type: ignore[arg-type]


def console(width: int = 200) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def text_of(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def progress(done: int, total: int, elapsed_s: float) -> dict[str, Any]:
    return {
        "kind": "progress",
        "chunks_done": done,
        "chunks_total": total,
        "tokens_done": done * 16,
        "tokens_total": total * 16,
        "tokens_per_s": 123.4,
        "elapsed_s": elapsed_s,
    }


def test_a_phase_is_reached_when_the_slowest_rank_is_there() -> None:
    phases = Phases()
    assert phases.enter(0, "load") == "load"
    assert phases.enter(1, "load") is None
    assert phases.enter(0, "compile") is None
    assert phases.enter(1, "compile") == "compile"


def test_rank_0_alone_says_when_decode_begins() -> None:
    phases = Phases()
    for rank in range(3):
        phases.enter(rank, "prefill")
    assert phases.enter(0, "decode") == "decode"


def test_plain_lines_are_few_and_the_last_one_is_shown() -> None:
    target = console()
    view = PlainView(target)
    view.take({"kind": "phase", "rank": 0, "phase": "prefill"})
    view.take({"kind": "busy", "rank": 1, "busy_share": 0.954})
    for done in range(1, 101):
        view.take(progress(done, 100, elapsed_s=done * 0.1))
    lines = text_of(target).splitlines()
    assert lines[0] == "prefill"
    assert lines[-1] == "chunks 100/100, 1600/1600 tokens, 123 tokens/s, busy: rank 1 95%"
    assert 3 <= len(lines) <= 5


def test_a_pipe_gets_plain_lines() -> None:
    target = console()
    with show_progress(target) as on_event:
        on_event(progress(4, 4, 1.0))
    assert "chunks 4/4" in text_of(target) and "\x1b" not in text_of(target)


def test_a_terminal_gets_bar_busy_shares_and_the_growing_answer() -> None:
    view = LiveView()
    view.take({"kind": "phase", "rank": 0, "phase": "prefill"})
    view.take(progress(3, 4, 1.0))
    view.take({"kind": "busy", "rank": 0, "busy_share": 0.97})
    view.take({"kind": "token", "id": "story", "text": "Once [upon]"})
    view.take({"kind": "token", "id": "story", "text": " a time"})
    target = console()
    target.print(view.render())
    shown = text_of(target)
    for part in ("prefill", "3/4", "123 tokens/s", "rank 0 97%", "story: Once [upon] a time"):
        assert part in shown


def test_events_of_another_kind_are_no_reason_to_stop() -> None:
    silent = console()
    LiveView().take({"kind": "news"})
    PlainView(silent).take({"kind": "news"})
    assert text_of(silent) == ""


RESULT: dict[str, Any] = {
    "method": "vpp",
    "placement": "v",
    "num_ranks": 2,
    "virtual_stages": 2,
    "prompt_tokens": 3000,
    "makespan_s": 10.0,
    "tokens_per_s": 300.0,
    "bubble_ratio": 0.04321,
    "bubble_ratio_steady": 0.01,
    "origin": "measured",
    "ranks": [
        {
            "rank": rank,
            "busy_s": 9.5,
            "wait_recv_s": 0.4,
            "wait_send_s": 0.0012,
            "bytes_sent": 3 * 2**20,
            "messages_sent": 24,
            "peak_rss_bytes": 512 * 2**20,
            "cpu_s": 9.9,
        }
        for rank in range(2)
    ],
    "requests": [
        {
            "id": "story [1]",
            "prompt_tokens": 3000,
            "ttft_s": 9.0,
            "output_token_ids": [1, 2, 3],
            "text": "A whale [and] a captain.",
            "finish_reason": "stop",
            "error": None,
        },
        {
            "id": "broken",
            "prompt_tokens": 3,
            "ttft_s": None,
            "output_token_ids": [],
            "text": None,
            "finish_reason": "error",
            "error": "x",
        },
    ],
}


def test_a_result_shows_answer_ranks_bubble_and_files() -> None:
    target = console()
    print_result(RESULT, CONFIG, target)
    shown = text_of(target)
    for part in (
        "story [1] (3000 prompt tokens, first token after 9.00 s, 3 tokens out, finish: stop)",
        "A whale [and] a captain.",
        "bubble 4.3% (steady 1.0%)",
        "300 tokens/s",
        "out/result.json",
        "out/trace.json",
    ):
        assert part in shown
    assert "logits" not in shown
    rows = [line for line in shown.splitlines() if "95%" in line]
    assert len(rows) == 2 and "3.0" in rows[0] and "512" in rows[0] and "24" in rows[0]


def test_a_comparison_shows_medians_and_ratios() -> None:
    median = {
        "makespan_s": 2.0,
        "tokens_per_s": 100.0,
        "bubble_ratio": 0.2,
        "bubble_ratio_steady": 0.1,
        "origin": "measured",
    }
    entry = {"placement": "plain", "virtual_stages": 1, "chunks": [512] * 7, "rounds": []}
    methods = {
        "cpp": entry | {"median": median, "ratio_to_first": 1.0},
        "vpp": entry
        | {"placement": "v", "virtual_stages": 4}
        | {"median": median | {"tokens_per_s": 115.0}, "ratio_to_first": 1.15},
    }
    target = console()
    print_comparison({"origin": "measured", "rounds": 3, "methods": methods}, CONFIG, target)
    shown = text_of(target)
    for part in (
        "measured, median of 3 rounds",
        "cpp",
        "plain x1",
        "v x4",
        " 7 ",
        "1.150",
        "20.0%",
        "out/compare.json",
    ):
        assert part in shown
