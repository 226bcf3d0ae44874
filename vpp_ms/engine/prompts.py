"""Reading prompts: a .jsonl file or a text file becomes checked `Prompt`s.

A .jsonl line is {"id", "text"}, {"id", "messages"} or {"id", "token_ids"}, each with an
optional "max_new_tokens". A text file is one prompt, as it is or with a question about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.text import TextCodec
from vpp_ms.errors import ConfigError, RequestError, nearest

CONTENT_KEYS = ("text", "messages", "token_ids")
KEYS = ("id", *CONTENT_KEYS, "max_new_tokens")


@dataclass(frozen=True)
class Prompt:
    """One request as it enters the engine."""

    id: str
    token_ids: tuple[int, ...]
    max_new_tokens: int


def read_prompts(config: RunConfig, spec: ModelSpec) -> list[Prompt]:
    """All prompts of `input.prompts`, in the file's order.

    Raises RequestError naming file and line, ConfigError when no file is given.
    """
    path = config.input.prompts
    if path is None:
        raise ConfigError("input.prompts", "missing", allowed="a .jsonl file or a text file")
    reader = PromptReader(
        config.pretrained_model_dir, spec, config.model.max_seq_len, config.input.max_new_tokens
    )
    text = _read_text(path)
    if path.suffix != ".jsonl":
        return [reader.document(str(path), path.stem, text, config.input.question)]
    prompts: dict[str, Prompt] = {}
    for where, fields in _lines(path, text):
        prompt = reader.prompt(where, fields)
        if prompt.id in prompts:
            raise RequestError(f"{where}: id", f"{prompt.id!r} again", allowed="each id once")
        prompts[prompt.id] = prompt
    if not prompts:
        raise RequestError(str(path), "no prompts", allowed="at least one line")
    return list(prompts.values())


class PromptReader:
    """Makes `Prompt`s for one model; the tokenizer is loaded when the first text comes."""

    def __init__(
        self, model_dir: Path, spec: ModelSpec, max_seq_len: int | None, max_new_tokens: int
    ) -> None:
        self._model_dir, self._spec = model_dir, spec
        self._max_seq_len = spec.max_position if max_seq_len is None else max_seq_len
        self._max_new_tokens = max_new_tokens

    def document(self, where: str, name: str, text: str, question: str | None) -> Prompt:
        """A whole text, as it is, or as a chat message followed by a question about it."""
        if not text.strip():
            raise RequestError(where, "an empty text", allowed="at least one word")
        if question is None:
            return self.prompt(where, {"id": name, "text": text})
        message = {"role": "user", "content": f"{text.strip()}\n\nQuestion: {question}"}
        return self.prompt(where, {"id": name, "messages": [message]})

    def prompt(self, where: str, fields: dict[str, Any]) -> Prompt:
        """`fields` is one line of a .jsonl file. Raises RequestError."""
        for key in fields.keys() - set(KEYS):
            meant = nearest(key, KEYS)
            raise RequestError(
                f"{where}: {key}", "unknown key", allowed=", ".join(KEYS), hint=meant
            )
        given = [key for key in CONTENT_KEYS if key in fields]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise RequestError(where, got, allowed=f"one of {', '.join(CONTENT_KEYS)}")
        name, limit = fields.get("id"), fields.get("max_new_tokens", self._max_new_tokens)
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise RequestError(f"{where}: id", repr(name), allowed="a name")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise RequestError(f"{where}: max_new_tokens", repr(limit), allowed="an integer >= 0")
        token_ids = self._token_ids(f"{where}: {given[0]}", given[0], fields[given[0]])
        self._check_length(f"{where}: {given[0]}", len(token_ids), limit)
        return Prompt(str(name), token_ids, limit)

    def _token_ids(self, where: str, key: str, value: Any) -> tuple[int, ...]:
        if not value:
            raise RequestError(where, "an empty prompt", allowed="at least one token")
        if key == "text":
            if not isinstance(value, str):
                raise RequestError(where, repr(value), allowed="a string")
            token_ids = self._codec.encode(value)
        elif key == "messages":
            _check_messages(where, value)
            token_ids = self._codec.encode_chat(value)
        else:
            if not isinstance(value, list) or not all(type(token) is int for token in value):
                raise RequestError(where, "not a list of integers", allowed="[1, 2, ...]")
            token_ids = tuple(value)
        outside = [token for token in token_ids if not 0 <= token < self._spec.vocab_size]
        if outside:
            raise RequestError(where, outside[0], allowed=f"0 to {self._spec.vocab_size - 1}")
        if not token_ids:
            raise RequestError(where, "no token in it", allowed="at least one token")
        return token_ids

    def _check_length(self, where: str, num_tokens: int, max_new_tokens: int) -> None:
        if num_tokens + max_new_tokens <= min(self._max_seq_len, self._spec.max_position):
            return
        raise RequestError(
            where,
            f"{num_tokens} prompt tokens and max_new_tokens {max_new_tokens}",
            allowed=f"together at most model.max_seq_len {self._max_seq_len}"
            f" and the model's own {self._spec.max_position}",
            hint="a shorter prompt or fewer new tokens",
        )

    @cached_property
    def _codec(self) -> TextCodec:
        return TextCodec(self._model_dir)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise RequestError(f"input.prompts: {path}", error.strerror or error) from None
    except UnicodeDecodeError as error:
        raise RequestError(
            f"input.prompts: {path}", f"not UTF-8 at byte {error.start}", allowed="UTF-8 text"
        ) from None


def _lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, the line's object); blank lines are skipped."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise RequestError(where, f"not JSON ({error})", allowed="one object a line") from None
        if not isinstance(fields, dict):
            raise RequestError(where, type(fields).__name__, allowed="a JSON object")
        yield where, fields


def _check_messages(where: str, messages: Any) -> None:
    allowed = '[{"role": "user", "content": "..."}, ...]'
    if not isinstance(messages, list):
        raise RequestError(where, type(messages).__name__, allowed=allowed)
    for message in messages:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise RequestError(where, repr(message)[:80], allowed=allowed)
