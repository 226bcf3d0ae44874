"""Files that scripts write are as new as what they are written from."""

from __future__ import annotations

import runpy

import pytest
from source_tree import ROOT


@pytest.mark.parametrize(
    ("script", "written"),
    [
        ("scripts/config_reference.py", "docs/config.md"),
        ("scripts/readme_picture.py", "docs/plain_and_v.svg"),
        ("scripts/readme_table.py", "README.md"),
    ],
)
def test_up_to_date(script: str, written: str) -> None:
    fresh = runpy.run_path(str(ROOT / script))["render"]()
    assert (ROOT / written).read_text(encoding="utf-8") == fresh, f"run: python {script}"
