"""Every configuration key says what it means, so that docs/config.md can."""

from __future__ import annotations

from vpp_ms.config.keys import all_keys, field_at, section_at


def test_every_key_has_a_description() -> None:
    for key in all_keys():
        path = key.split(".")
        section, info = section_at(path), field_at(path)
        assert info is not None
        described = section.__doc__ if section is not None else info.description
        assert described, key
