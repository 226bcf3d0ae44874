"""A YAML file becomes one of this room's frozen sections, or one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from vpp_ms.config.schema import Section
from vpp_ms.config.yaml_source import YamlSource, read_yaml
from vpp_ms.errors import ConfigError, nearest

Form = TypeVar("Form", bound=Section)


def read_form(path: Path, form: type[Form]) -> Form:
    """Raises ConfigError naming file, line and key of the first mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = (getattr(error, "strerror", None) or "not a text file in UTF-8").lower()
        raise ConfigError(str(path), got, allowed="a YAML file") from None
    source = read_yaml(text, str(path))
    if not isinstance(source.data, dict):
        raise ConfigError(str(path), "no keys and values", allowed=", ".join(form.model_fields))
    try:
        return form.model_validate_json(json.dumps(source.data, default=str), strict=True)
    except ValidationError as error:
        raise _first_error(error, path, source, form) from None


def _first_error(
    error: ValidationError, path: Path, source: YamlSource, form: type[Section]
) -> ConfigError:
    first = error.errors(include_url=False)[0]
    keys = tuple(str(part) for part in first["loc"])
    lines = (source.lines.get(keys[:n]) for n in range(len(keys), 0, -1))
    line = next((number for number in lines if number is not None), None)
    where = f"{path}:{line}: {'.'.join(keys)}" if line else f"{path}: {'.'.join(keys)}"
    if first["type"] == "extra_forbidden":
        known = _keys_at(form, keys[:-1])
        return ConfigError(
            where, "unknown key", allowed=", ".join(known), hint=nearest(keys[-1], known)
        )
    if first["type"] == "missing":
        return ConfigError(where, "missing", allowed="a value: it has no default")
    return ConfigError(where, json.dumps(first["input"], default=str)[:60], allowed=first["msg"])


def _keys_at(form: type[Section], above: tuple[str, ...]) -> list[str]:
    section: type[Section] = form
    for key in above:
        kind = section.model_fields[key].annotation if key in section.model_fields else None
        if not (isinstance(kind, type) and issubclass(kind, Section)):
            return []
        section = kind
    return list(section.model_fields)
