"""The dotted keys of the schema, and the nearest right key for a wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from pydantic.fields import FieldInfo

from vpp_ms.config.foreign import FOREIGN_KEYS
from vpp_ms.config.schema import RunConfig, Section
from vpp_ms.errors import nearest


def section_at(path: Sequence[str]) -> type[Section] | None:
    """The section class that a path of keys leads to, or None where it leads to no section."""
    section: type[Section] | None = RunConfig
    for key in path:
        section = None if section is None else _sub_section(section.model_fields.get(key))
    return section


def field_at(path: Sequence[str]) -> FieldInfo | None:
    """The schema's field of a dotted key, or None."""
    section = section_at(path[:-1])
    return None if section is None or not path else section.model_fields.get(path[-1])


def known_part(location: Sequence[str | int]) -> tuple[str, ...]:
    """The keys of the schema a pydantic location begins with; union tags and indices cut off."""
    path: tuple[str, ...] = ()
    for key in location:
        if not isinstance(key, str) or field_at((*path, key)) is None:
            break
        path = (*path, key)
    return path


def advice_for(path: Sequence[str]) -> str | None:
    """What to write instead of the unknown key `path`, or None where nothing is near."""
    *above, word = path
    section = section_at(above)
    advice = {dotted.rsplit(".", 1)[-1]: dotted for dotted in reversed(all_keys())}
    advice.update(FOREIGN_KEYS)
    if section is not None:
        advice.update({name: ".".join((*above, name)) for name in section.model_fields})
    best = nearest(word, advice)
    return None if best is None else advice[best]


@cache
def all_keys() -> tuple[str, ...]:
    """Every dotted key of the schema, sections included, in the schema's order."""
    return tuple(_walk(RunConfig, ""))


def _walk(section: type[Section], prefix: str) -> Iterator[str]:
    for name, info in section.model_fields.items():
        yield prefix + name
        below = _sub_section(info)
        if below is not None:
            yield from _walk(below, f"{prefix}{name}.")


def _sub_section(info: FieldInfo | None) -> type[Section] | None:
    kind = None if info is None else info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None
