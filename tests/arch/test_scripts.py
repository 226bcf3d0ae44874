"""The shell scripts parse, and say what is missing on a machine without a fitting Python."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

SCRIPTS = [*sorted(ROOT.glob("scripts/*.sh")), ROOT / ".ci/run"]
BASH = shutil.which("bash") or "bash"


def bash(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BASH, "-c", command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_parses(script: Path) -> None:
    done = subprocess.run([BASH, "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ci_may_be_run() -> None:
    assert (ROOT / ".ci/run").stat().st_mode & stat.S_IXUSR


def test_no_fitting_python_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text(f"#!{BASH}\nexit 1\n")  # such as Python 3.13
    (tmp_path / "python3").chmod(0o755)
    done = bash("set -euo pipefail; source scripts/venv.sh; make_venv x", PATH=str(tmp_path))
    assert done.returncode != 0
    assert "needs Python 3.10, 3.11 or 3.12" in done.stderr and "apt-get install" in done.stderr


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "python3.11").write_text(f'#!{BASH}\n[[ "$*" != *libgomp* ]]\n')
    (tmp_path / "python3.11").chmod(0o755)
    done = bash("set -euo pipefail; source scripts/venv.sh; make_venv x", PATH=str(tmp_path))
    assert done.returncode != 0
    assert "libgomp.so.1" in done.stderr and "libgomp1" in done.stderr
