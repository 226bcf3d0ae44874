"""Real msrun ranks, and the check that none of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


def processes_with(word: str) -> list[str]:
    """Command lines of the running processes, this one excepted, that carry `word`."""
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            if word in command and process.pid != os.getpid():
                found.append(f"{process.pid} {command}")
        except psutil.Error:
            continue
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Call it with a time limit; at the end of the test it is called anyway.

    A process belongs to the test when its command line has the test's directory in it: msrun
    has it as --log_dir, the workers as their first argument.
    """

    def check(within_s: float = 0.0) -> None:
        deadline_s = time.monotonic() + within_s
        while (left := processes_with(str(tmp_path))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert not left

    yield check
    check()


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks import this checkout, whatever directory they run in."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.fixture
def spawn_launcher() -> Iterator[Callable[..., subprocess.Popen]]:
    """`launch` in a process of its own; it prints every event, then "done" or the error."""
    spawned: list[subprocess.Popen] = []

    def spawn(argv_of_worker: list[str], log_dir: Path, num_ranks: int) -> subprocess.Popen:
        script = LAUNCHER.format(argv=argv_of_worker, log_dir=str(log_dir), num_ranks=num_ranks)
        command = [sys.executable, "-c", script]
        spawned.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return spawned[-1]

    yield spawn
    for process in spawned:
        process.kill()
        process.communicate()


LAUNCHER = """
import sys
from pathlib import Path
from vpp_ms.engine.launch import launch
from vpp_ms.errors import VppError
try:
    launch({argv!r}, num_ranks={num_ranks}, log_dir=Path({log_dir!r}),
           on_event=lambda event: print(event, flush=True))
except VppError as error:
    sys.exit(f"{{type(error).__name__}} {{error}}")
print("done")
"""
