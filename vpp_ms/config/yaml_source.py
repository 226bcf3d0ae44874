"""YAML text -> plain data plus the line of every key; duplicate keys are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from vpp_ms.errors import ConfigError

KeyPath = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads 1e-3 as a number, as YAML 1.2 and JSON do."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


@dataclass(frozen=True)
class YamlSource:
    """`data` as read; `lines[("vpp", "window")]` is the 1-based line of that key."""

    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)


def read_yaml(text: str, where: str) -> YamlSource:
    """Raises ConfigError with the line for bad syntax, a duplicate key or a key that is no word."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[KeyPath, int] = {}
        if node is None:
            return YamlSource(None)
        _walk(node, (), lines, where)
        return YamlSource(loader.construct_document(node), lines)
    except yaml.YAMLError as error:
        raise _syntax_error(error, where) from None
    finally:
        loader.dispose()


def read_value(text: str, where: str) -> Any:
    """One value in YAML, as in `--set key=value`."""
    return read_yaml(text, where).data


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], where: str) -> None:
    if isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _walk(child, path, {}, where)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{where}:{line}", "a key that is not a word", allowed="key: value")
        below = (*path, key.value)
        if below in lines:
            raise ConfigError(
                f"{where}:{line}: {'.'.join(below)}",
                "given twice",
                allowed="each key once",
                hint=f"keep one of lines {lines[below]} and {line}",
            )
        lines[below] = line
        _walk(value, below, lines, where)


def _syntax_error(error: yaml.YAMLError, where: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = where if mark is None else f"{where}:{mark.line + 1}:{mark.column + 1}"
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return ConfigError(place, f"not YAML ({problem})", allowed="two-space indented `key: value`")
