"""`TextCodec`: tokenizer and chat template of a Hugging Face directory.

Read with the tokenizers library and Jinja alone: importing Transformers would cost every
command seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from vpp_ms.errors import CheckpointError, RequestError
from vpp_ms.model.hf_config import read_json

Message = Mapping[str, str]
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class TextCodec:
    """Text to token ids and back.

    Raises RequestError when the directory has no `tokenizer.json` (token ids can still be
    served), CheckpointError when it cannot be read.
    """

    def __init__(self, model_dir: Path | str) -> None:
        self._dir = Path(model_dir)
        path = self._dir / "tokenizer.json"
        if not path.is_file():
            raise RequestError(
                str(self._dir), "no tokenizer.json", allowed="prompts as token_ids without one"
            )
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(str(path), f"not a tokenizer ({error})") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        settings = self._dir / "tokenizer_config.json"
        self._settings: dict[str, Any] = read_json(settings) if settings.is_file() else {}

    @classmethod
    def of(cls, model_dir: Path | str) -> TextCodec | None:
        """The directory's codec, or None where there is no tokenizer and ids have to do."""
        return cls(model_dir) if (Path(model_dir) / "tokenizer.json").is_file() else None

    def encode(self, text: str) -> tuple[int, ...]:
        """Plain text, with the marks the tokenizer itself puts around it (a BOS, say)."""
        return tuple(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Messages through the chat template, ending where the assistant's answer begins.

        Raises RequestError when there is no template or it refuses the messages.
        """
        rendered = self.render_chat(messages)
        return tuple(self._tokenizer.encode(rendered, add_special_tokens=False).ids)

    def render_chat(self, messages: Sequence[Message]) -> str:
        """The text that `encode_chat` encodes."""
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except TemplateError as error:
            raise RequestError(f"{self._dir}: chat template", error.message or error) from None

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text without special tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def eos_token_id(self) -> int | None:
        token = self._special_tokens.get("eos_token")
        return None if token is None else self._tokenizer.token_to_id(token)

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        found = {}
        for name in _SPECIAL_NAMES:
            token = self._settings.get(name)
            if isinstance(token, Mapping):  # an AddedToken as Transformers 4 writes it
                token = token.get("content")
            if isinstance(token, str):
                found[name] = token
        return found

    @cached_property
    def _template(self) -> Template:
        path = self._dir / "chat_template.jinja"
        source = path.read_text("utf-8") if path.is_file() else self._settings.get("chat_template")
        if isinstance(source, list):  # several named templates
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
        if not isinstance(source, str):
            raise RequestError(
                str(self._dir), "no chat template", allowed='prompts as "text" without one'
            )
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
        return environment.from_string(source)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
