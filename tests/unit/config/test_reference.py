"""docs/config.md is what scripts/config_reference.py writes, and says something of every key."""

from __future__ import annotations

import runpy
from pathlib import Path

from vpp_ms.config.keys import all_keys, field_at, section_at

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "docs/config.md").read_text(encoding="utf-8")
    script = runpy.run_path(str(ROOT / "scripts/config_reference.py"))
    assert written == script["render"](), "run: python scripts/config_reference.py"


def test_every_key_has_a_description() -> None:
    for key in all_keys():
        path = key.split(".")
        section, info = section_at(path), field_at(path)
        assert info is not None
        described = section.__doc__ if section is not None else info.description
        assert described, key
