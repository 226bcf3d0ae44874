"""Writes docs/config.md from the schema:  python scripts/config_reference.py

A test fails when the page is older than the schema.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vpp_ms.config.schema import RunConfig, Section

PAGE = Path(__file__).resolve().parents[1] / "docs/config.md"

HEAD = """\
# Configuration

*Written by `scripts/config_reference.py` from `vpp_ms/config/schema.py`.*

One YAML file describes a run. Unknown keys are refused with the nearest right key; every key can
be overridden with `--set section.key=value` (the value is YAML). Relative paths are relative to
the working directory. `vpp.method` fills in what is not given; keys given explicitly win, and
`null` asks for the default.
"""


def render() -> str:
    return "\n".join([HEAD, *_section(RunConfig, ""), ""])


def _section(section: type[Section], name: str) -> Iterator[str]:
    fields = section.model_fields
    below = {key: info for key, info in fields.items() if _is_section(info.annotation)}
    yield f"## `{name}`" if name else "## Top level"
    yield ""
    yield " ".join((section.__doc__ or "").split())
    yield ""
    yield "| key | values | default | meaning |"
    yield "|---|---|---|---|"
    for key, info in fields.items():
        if key not in below:
            yield _row(key, info)
    yield ""
    for key, info in below.items():
        yield from _section(info.annotation, f"{name}.{key}" if name else key)  # type: ignore[arg-type]


def _row(key: str, info: FieldInfo) -> str:
    if info.default is PydanticUndefined:
        default = "**needed**"
    elif info.default is None:
        default = ""
    else:
        default = f"`{_plain(info.default)}`"
    values = " or ".join(dict.fromkeys(_values(info.annotation, info.metadata)))
    return f"| `{key}` | {values} | {default} | {info.description or ''} |"


def _values(kind: Any, metadata: list[Any]) -> Iterator[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = [m for extra in arguments[1:] for m in getattr(extra, "metadata", [extra])]
        yield from _values(arguments[0], [*metadata, *inner])
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            if argument is not type(None):
                yield from _values(argument, metadata)
    elif origin is Literal:
        yield ", ".join(f"`{_plain(value)}`" for value in arguments)
    elif origin is tuple:
        yield "a list" + (f" of {len(arguments)}" if Ellipsis not in arguments else "")
    else:
        words = {int: "integer", float: "number", str: "text", Path: "path", bool: "true, false"}
        bounds = [text for bound in metadata if (text := _bound(bound))]
        yield " ".join([words[kind], *bounds])


def _bound(bound: Any) -> str:
    signs = {"Ge": ">=", "Gt": ">", "Le": "<=", "Lt": "<"}
    found = re.fullmatch(r"(Ge|Gt|Le|Lt)\(\w+=(.+)\)", repr(bound))
    return f"{signs[found[1]]} {found[2]}" if found else ""


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")
