"""Reading prompts: three kinds of line, a text file, and every mistake with its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.prompts import Prompt, read_prompts
from vpp_ms.engine.text import TextCodec
from vpp_ms.errors import ConfigError, RequestError
from vpp_ms.model.registry import load_spec

MODEL_DIR = Path(__file__).parents[2] / "golden/data/qwen3_moe_m0"
SPEC = load_spec(MODEL_DIR)  # 97 tokens, 128 positions


def read(
    path: Path, *, max_seq_len: int = 128, spec: Any = SPEC, **input_keys: Any
) -> list[Prompt]:
    config = RunConfig.model_validate(
        {
            "pretrained_model_dir": str(MODEL_DIR),
            "model": {"max_seq_len": max_seq_len},
            "input": {"prompts": str(path), "max_new_tokens": 4, **input_keys},
        }
    )
    return read_prompts(config, spec)


def read_lines(tmp_path: Path, *lines: Any, **keys: Any) -> list[Prompt]:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines), "utf-8")
    return read(path, **keys)


def test_three_kinds_of_line(tmp_path: Path) -> None:
    codec, messages = TextCodec(MODEL_DIR), [{"role": "user", "content": "Hi"}]
    got = read_lines(
        tmp_path,
        {"id": "a", "text": "one\ntwo"},
        "",
        {"id": "b", "messages": messages, "max_new_tokens": 0},
        {"id": 3, "token_ids": [0, 96, 1, 1], "max_new_tokens": 9},
    )
    assert got == [
        Prompt("a", codec.encode("one\ntwo"), 4),
        Prompt("b", codec.encode_chat(messages), 0),
        Prompt("3", (0, 96, 1, 1), 9),
    ]


def test_a_text_file_is_one_prompt(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text("Once.\n")
    codec = TextCodec(MODEL_DIR)
    assert read(path) == [Prompt("story", codec.encode("Once.\n"), 4)]
    asked = [{"role": "user", "content": "Once.\n\nQuestion: When?"}]
    assert read(path, question="When?") == [Prompt("story", codec.encode_chat(asked), 4)]


OK = {"id": "ok", "token_ids": [1]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", ["not JSON"]),
        ("[1]", ["list", "JSON object"]),
        ({"id": "a"}, ["none of them", "text, messages, token_ids"]),
        ({"id": "a", "text": "x", "token_ids": [1]}, ["text and token_ids", "one of"]),
        ({"id": "a", "txet": "x"}, ["txet", "unknown key", "try: text"]),
        ({"text": "x"}, ["id", "None"]),
        ({"id": "", "text": "x"}, ["id", "''"]),
        ({"id": ["a"], "text": "x"}, ["id", "['a']"]),
        ({"id": "ok", "text": "x"}, ["id", "'ok' again"]),
        ({"id": "a", "text": ""}, ["text", "empty prompt"]),
        ({"id": "a", "token_ids": []}, ["token_ids", "empty prompt"]),
        ({"id": "a", "messages": []}, ["messages", "empty prompt"]),
        ({"id": "a", "text": 5}, ["text", "5", "a string"]),
        ({"id": "a", "text": "é"}, ["text", "no token"]),
        ({"id": "a", "messages": "Hi"}, ["messages", "str", "role"]),
        ({"id": "a", "messages": [{"role": "user"}]}, ["messages", "content"]),
        ({"id": "a", "token_ids": "1 2"}, ["token_ids", "list of integers"]),
        ({"id": "a", "token_ids": [1, 2.5]}, ["token_ids", "list of integers"]),
        ({"id": "a", "token_ids": [True]}, ["token_ids", "list of integers"]),
        ({"id": "a", "token_ids": [5, 97]}, ["token_ids", "97", "0 to 96"]),
        ({"id": "a", "token_ids": [-1]}, ["token_ids", "-1", "0 to 96"]),
        ({"id": "a", "token_ids": [1], "max_new_tokens": -1}, ["max_new_tokens", "-1"]),
        ({"id": "a", "token_ids": [1], "max_new_tokens": "3"}, ["max_new_tokens", "'3'"]),
    ],
)
def test_a_bad_line_is_named_with_its_place(tmp_path: Path, line: Any, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        read_lines(tmp_path, OK, "", line)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/p.jsonl:3") and "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("length", "new_tokens", "fits"),
    [(128, 0, True), (127, 1, True), (128, 1, False), (129, 0, False), (1, 127, True)],
)
def test_prompt_and_output_share_the_length(
    tmp_path: Path, length: int, new_tokens: int, fits: bool
) -> None:
    line = {"id": "a", "token_ids": [2] * length, "max_new_tokens": new_tokens}
    longer = replace(SPEC, max_position=1000)
    for limits in ({"max_seq_len": 1000}, {"spec": longer}):
        if fits:
            assert len(read_lines(tmp_path, line, **limits)[0].token_ids) == length
            continue
        with pytest.raises(RequestError) as caught:
            read_lines(tmp_path, line, **limits)
        words = (f"{length} prompt tokens", f"max_new_tokens {new_tokens}", "128", "1000")
        assert all(word in str(caught.value) for word in words)


def test_files_that_are_missing_empty_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(RequestError, match="no prompts"):
        read(tmp_path / "empty.jsonl")
    (tmp_path / "empty.txt").write_text(" \n")
    for question in (None, "Why?"):
        with pytest.raises(RequestError, match="an empty text"):
            read(tmp_path / "empty.txt", question=question)
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(RequestError, match="not UTF-8"):
        read(tmp_path / "latin.txt")


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(OK).encode() + b"\r\n")
    assert read(path) == [Prompt("ok", (1,), 4)]


def test_token_ids_need_no_tokenizer_but_text_does(tmp_path: Path) -> None:
    lines = tmp_path / "p.jsonl"
    bare = MODEL_DIR.parent / "mixtral_tied"
    values = {"pretrained_model_dir": str(bare), "input": {"prompts": str(lines)}}
    config = RunConfig.model_validate(values | {"model": {"max_seq_len": 64}})
    lines.write_text(json.dumps(OK))
    assert read_prompts(config, load_spec(bare))[0].token_ids == (1,)
    lines.write_text('{"id": "a", "text": "x"}')
    with pytest.raises(RequestError, match=r"no tokenizer\.json"):
        read_prompts(config, load_spec(bare))


def test_prompts_must_be_given() -> None:
    config = RunConfig.model_validate({"pretrained_model_dir": str(MODEL_DIR)})
    with pytest.raises(ConfigError, match=r"input\.prompts: missing"):
        read_prompts(config, SPEC)
