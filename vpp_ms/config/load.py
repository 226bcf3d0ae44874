"""A YAML file and `--set key=value` overrides become a `RunConfig`, or one clear line.

Relative paths in the file are relative to the working directory, as in MindFormers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vpp_ms.config.checks import check_config
from vpp_ms.config.keys import advice_for, field_at, known_part, section_at
from vpp_ms.config.schema import RunConfig
from vpp_ms.config.yaml_source import YamlSource, read_value, read_yaml
from vpp_ms.errors import ConfigError

Overrides = Mapping[tuple[str, ...], Any]


def load_config(
    path: str | Path, overrides: Sequence[str] = (), methods: Sequence[str] = ()
) -> RunConfig:
    """Read, override, validate and cross-check.

    `overrides` are strings "section.key=value", the value in YAML; the last one wins.
    `methods` are those that will be run (default: `vpp.method`): a key that none of them reads
    is refused.

    Raises:
        ConfigError: naming file and line (or the override) and key, what was got, what is
            allowed and what to try. With several errors the first, and how many more.
    """
    path = Path(path)
    source = read_yaml(_read_text(path), str(path))
    if not isinstance(source.data, dict):
        raise ConfigError(str(path), _shown(source.data), allowed="keys and values of a run")
    changes = _parse_overrides(overrides)
    data = _apply(source.data, changes)
    where = _Where(path, source, changes)
    config = _validate(data, where)
    check_config(config, where.of, methods or (config.vpp.method,))
    return config


class _Where:
    """Names the place a key came from: an override, or the file and line."""

    def __init__(self, path: Path, source: YamlSource, changes: Overrides) -> None:
        self._path, self._lines, self._changes = path, source.lines, changes

    def of(self, key: str) -> str:
        """`key` is dotted; the nearest section that is written down names the line."""
        parts = tuple(key.split("."))
        for length in range(len(parts), 0, -1):
            if parts[:length] in self._changes:
                return f"--set {key}"
            if parts[:length] in self._lines:
                return f"{self._path}:{self._lines[parts[:length]]}: {key}"
        return f"{self._path}: {key}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(str(path), "not a text file in UTF-8", allowed="a YAML file") from None
    except OSError as error:
        got = (error.strerror or "cannot be read").lower()
        raise ConfigError(
            str(path), got, allowed="a YAML file", hint="one of yaml_configs/"
        ) from None


def _parse_overrides(overrides: Sequence[str]) -> dict[tuple[str, ...], Any]:
    changes: dict[tuple[str, ...], Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {text}", "no key=value", allowed="--set vpp.virtual_stages=4")
        path = tuple(key.split("."))
        if field_at(path) is None:
            raise _unknown_key(f"--set {key}", path)
        changes.pop(path, None)
        changes[path] = read_value(value, f"--set {key}")
    return changes


def _apply(data: dict[str, Any], changes: Overrides) -> dict[str, Any]:
    """A copy of `data` with the overrides in it; missing sections are made."""
    result = dict(data)
    for path, value in changes.items():
        section = result
        for key in path[:-1]:
            below = section.get(key)
            section[key] = dict(below) if isinstance(below, dict) else {}
            section = section[key]
        section[path[-1]] = value
    return result


def _validate(data: dict[str, Any], where: _Where) -> RunConfig:
    empty = [key for key, value in data.items() if value is None and section_at([key])]
    present = {key: value for key, value in data.items() if key not in empty}
    try:
        # JSON in strict mode: lists become tuples and text becomes paths, but true is no
        # number and "8" is not 8.
        return RunConfig.model_validate_json(json.dumps(present, default=str), strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    keys = list(dict.fromkeys(".".join(known_part(e["loc"])) or str(e["loc"][0]) for e in errors))
    raise _config_error(errors[0], where, len(keys) - 1)


def _config_error(error: ErrorDetails, where: _Where, more: int) -> ConfigError:
    """One pydantic error in the words of this project."""
    path = known_part(error["loc"])
    suffix = f" (and {more} more)" if more else ""
    if error["type"] == "extra_forbidden":
        unknown = tuple(str(part) for part in error["loc"])
        return _unknown_key(where.of(".".join(unknown)), unknown, suffix)
    key = ".".join(path) or ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing" and error["loc"] == path:
        return ConfigError(where.of(key), f"missing{suffix}", allowed=_allowed(error, path))
    return ConfigError(
        where.of(key), f"{_shown(error['input'])}{suffix}", allowed=_allowed(error, path)
    )


def _unknown_key(place: str, path: Sequence[str], suffix: str = "") -> ConfigError:
    section = section_at(path[:-1])
    allowed = ", ".join(section.model_fields) if section else "the keys of docs/config.md"
    return ConfigError(place, f"unknown key{suffix}", allowed=allowed, hint=advice_for(path))


def _allowed(error: ErrorDetails, path: Sequence[str]) -> str:
    """What the schema allows: the section's keys, the choices, the bound, the description."""
    section = section_at(path)
    if section is not None:
        return "a section with " + ", ".join(section.model_fields)
    context = error.get("ctx", {})
    kind = error["type"]
    info = field_at(path)
    described = (info.description or "") if info is not None else ""
    if len(error["loc"]) > len(path) and described:
        return described
    if kind == "string_type" and info is not None and "Path" in str(info.annotation):
        kind = "path_type"
    words = _WORDS.get(kind)
    if words is None:
        return error["msg"].lower()
    return words.format(**context) + (f" ({described})" if described else "")


_WORDS = {
    "bool_type": "true or false",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "path_type": "a path",
    "literal_error": "{expected}",
    "missing": "a value: it has no default",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
}


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
