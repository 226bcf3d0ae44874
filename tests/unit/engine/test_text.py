"""TextCodec: round trips, chat templates in every place they are kept, and what can be missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.engine.text import TextCodec
from vpp_ms.errors import CheckpointError, RequestError

MODEL_DIR = Path(__file__).parents[2] / "golden/data/qwen3_moe_m0"
MESSAGES = [{"role": "user", "content": "Hi!"}]
RENDERED = "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL_DIR / name, tmp_path / name)
    return tmp_path


def configure(directory: Path, **changes: object) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@given(st.text(alphabet=[chr(c) for c in range(32, 126)] + ["\n"]))
def test_text_comes_back(text: str) -> None:
    codec = TextCodec(MODEL_DIR)
    assert codec.decode(codec.encode(text)) == text


def test_a_chat_ends_where_the_answer_begins() -> None:
    codec = TextCodec(MODEL_DIR)
    assert codec.render_chat(MESSAGES) == RENDERED
    token_ids = codec.encode_chat(MESSAGES)
    start, end = 0, 1  # the two marks
    assert token_ids[0] == start and token_ids.count(start) == 2 and token_ids.count(end) == 1
    assert codec.decode(token_ids) == "user\nHi!\nassistant\n"


def test_vocabulary_and_end_token() -> None:
    codec = TextCodec(MODEL_DIR)
    assert (codec.vocab_size, codec.eos_token_id) == (97, 1)


def test_special_tokens_may_be_objects(directory: Path) -> None:
    configure(directory, eos_token={"content": "<|im_end|>", "lstrip": False})
    assert TextCodec(directory).eos_token_id == 1
    configure(directory, eos_token=None)
    assert TextCodec(directory).eos_token_id is None


def test_template_of_its_own_file_and_of_a_list(directory: Path) -> None:
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "{{ eos_token }}"}]
    configure(directory, chat_template=named)
    assert TextCodec(directory).render_chat(MESSAGES) == "<|im_end|>"
    (directory / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert TextCodec(directory).render_chat(MESSAGES) == "Hi!"


def test_templates_can_use_what_transformers_offers_them(directory: Path) -> None:
    source = (
        "{%- for m in messages %}\n"
        "    {%- if loop.index0 > 0 %}{% break %}{% endif %}\n"
        "{{- m | tojson }}{% endfor %} {{ strftime_now('%Y') | length }}"
    )
    (directory / "chat_template.jinja").write_text(source)
    rendered = TextCodec(directory).render_chat([{"role": "user", "content": "<é>"}] * 2)
    assert rendered == '{"role": "user", "content": "<é>"} 4'


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for %}", "chat template"),
        ("{{ messages.__class__.__mro__ }}", "chat template"),
    ],
)
def test_a_template_that_fails_fails_the_request(
    directory: Path, template: str, message: str
) -> None:
    (directory / "chat_template.jinja").write_text(template)
    with pytest.raises(RequestError, match=message):
        TextCodec(directory).encode_chat(MESSAGES)


def test_a_template_may_be_missing(directory: Path) -> None:
    configure(directory, chat_template=None)
    codec = TextCodec(directory)
    assert codec.decode(codec.encode("ok")) == "ok"
    with pytest.raises(RequestError, match="no chat template"):
        codec.encode_chat(MESSAGES)


def test_a_tokenizer_may_be_missing_but_not_broken(directory: Path) -> None:
    (directory / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a tokenizer"):
        TextCodec(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(RequestError, match=r"no tokenizer\.json.*token_ids"):
        TextCodec(directory)
