"""`vpp-ms plan` shows every stage, chunk and rank, and the schedule that would be run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vpp_ms.cli.main import BAD_INPUT, DONE, run_cli

Capture = pytest.CaptureFixture[str]

# The 5-layer MoE decoder of the tests of chunking and plan; 5 is odd on purpose.
TINY = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 97,
    "eos_token_id": 1,
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(TINY))
    path = tmp_path / "run.yaml"
    path.write_text(
        f"pretrained_model_dir: {tmp_path / 'model'}\n"
        "chunking: {chunk_tokens: 16}\nkv: {block_size: 4}\ninput: {max_new_tokens: 4}\n"
    )
    return str(path)


def shown(config: str, capture: Capture, *arguments: str) -> str:
    assert run_cli(["plan", config, *arguments]) == DONE
    return capture.readouterr().out


def refused(config: str, capture: Capture, *arguments: str) -> str:
    assert run_cli(["plan", config, *arguments]) == BAD_INPUT
    return capture.readouterr().err


def table_rows(text: str) -> list[list[str]]:
    """Rows that begin with a number, cut at runs of spaces."""
    lines = [line.strip() for line in text.splitlines()]
    return [re.split(r"\s{2,}", line) for line in lines if re.match(r"\d+\s", line)]


def test_stages_memory_chunks_and_grid(config: str, capsys: Capture) -> None:
    out = shown(config, capsys, "--tokens", "70")
    rows = table_rows(out)
    assert len(rows) == 4 + 2, "four stages, then the memory of two ranks"
    assert [row[1] for row in rows[:4]] == ["0", "1", "1", "0"]
    assert sum(int(row[3]) for row in rows[:4]) == 5
    assert rows[1][-1] == "here (fold)" and rows[3][-2:] == ["head", "samples here"]
    assert sum(int(row[1]) for row in rows[4:]) == 5
    assert "prompt of 70 tokens: fixed chunks: 4 x 16, 6" in out
    assert "KV pool: 19 blocks of 4 = 76 tokens" in out
    grid = [line for line in out.splitlines() if line.startswith("rank ")]
    assert len(grid) == 2
    assert grid[0].startswith("rank 0 |a0") and grid[1].startswith("rank 1 |.")


def test_same_input_same_schedule(config: str, capsys: Capture) -> None:
    assert shown(config, capsys, "--tokens", "70") == shown(config, capsys, "--tokens", "70")


def test_prompts_of_a_file_count_with_their_own_new_tokens(
    config: str, capsys: Capture, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"id": "a", "token_ids": [5] * 33, "max_new_tokens": 7},
        {"id": "b", "token_ids": [6] * 3},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = shown(config, capsys, "--set", f"input.prompts={prompts}")
    assert "prompt of 33 tokens: fixed chunks: 2 x 16, 1" in out
    assert "prompt of 3 tokens: fixed chunks: 3" in out
    assert "KV pool: 12 blocks" in out  # (33 + 7) / 4 and (3 + 4) / 4, rounded up


def test_layers_by_turns_show_what_is_held_and_what_runs(config: str, capsys: Capture) -> None:
    by_turns = ("--set", "vpp.method=cpp", "--set", "vpp.layer_split=turns")
    rows = table_rows(shown(config, capsys, "--tokens", "70", *by_turns))
    assert [row[2:4] for row in rows[:2]] == [["0-2", "2 or 3 of 3"], ["2-4", "2 or 3 of 3"]]
    assert sum(int(row[1]) for row in rows[2:]) == 6, "the middle layer is held twice"


def test_auto_shows_what_was_chosen(config: str, capsys: Capture) -> None:
    out = shown(config, capsys, "--tokens", "100", "--set", "vpp.method=auto")
    assert out.startswith("auto: placement ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("input.prompts: missing", "--tokens")),
        (("--tokens", "126"), ("126 prompt + 4 new tokens", "128")),
        (("--tokens", "9", "--set", "vpp.virtual_stages=3"), ("6 stages", "5 layers")),
        (("--tokens", "9", "--set", "vpp.layer_split=[2, 1, 1, 2]"), ("layer_split", "6", "5")),
        (("--tokens", "9", "--set", "vpp.layer_split=turn"), ("layer_split", "turn", "turns")),
        (("--tokens", "9", "--set", "model.max_seq_len=129"), ("129", "128")),
        (("--tokens", "9", "--set", "kv.memory_bytes=1"), ("kv.memory_bytes", "block")),
    ],
)
def test_what_cannot_be_planned(
    arguments: tuple[str, ...], parts: tuple[str, ...], config: str, capsys: Capture
) -> None:
    message = refused(config, capsys, *arguments)
    assert message.count("\n") == 1
    for part in parts:
        assert part in message
