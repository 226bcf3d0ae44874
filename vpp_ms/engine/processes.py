"""The processes of one launch: which are ranks, which have ended, and how to end the rest.

`msrun` puts every rank in a session of its own and orphans them all when it dies, so neither a
process group nor parentage finds them. A variable in their environment does: each launch gives
its processes a run key of its own.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import psutil

from vpp_ms.config.environ import RUN_KEY, RankEnv
from vpp_ms.errors import ConfigError

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)
KILL_TIMEOUT_S = 5.0


class LaunchedProcesses:
    """`root` is msrun; its process tree carries `run_key` in the environment."""

    def __init__(self, root: subprocess.Popen, run_key: str, num_ranks: int) -> None:
        self.root, self._run_key, self._num_ranks = root, run_key, num_ranks
        self._ranks: dict[int, psutil.Process] = {}

    def refresh(self) -> None:
        """Learn the ranks that msrun has started since.

        Looking for them reads all processes of the host, so it ends with the last one: the cores
        are the ranks'.
        """
        if len(self._ranks) == self._num_ranks:
            return
        try:
            children = psutil.Process(self.root.pid).children()
        except _GONE:
            return
        known = {process.pid for process in self._ranks.values()}
        for process in children:
            if process.pid not in known:
                rank = _rank_of(process)
                if rank is not None:
                    self._ranks[rank] = process

    def pid_of(self, rank: int) -> int | None:
        process = self._ranks.get(rank)
        return None if process is None else process.pid

    def ended_ranks(self) -> tuple[int, ...]:
        """Ranks that were seen running and no longer are."""
        return tuple(sorted(r for r, process in self._ranks.items() if not _is_running(process)))

    def wait_for_ranks(self, timeout_s: float) -> None:
        """Give the ranks time to end by themselves."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and len(self.ended_ranks()) < len(self._ranks):
            time.sleep(0.05)

    def end(self) -> None:
        """Kill what is left, msrun first: it would otherwise wait for its scheduler."""
        if self.root.poll() is None:
            self.root.kill()
        self.root.wait()
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while left := list(self._left()):
            for process in left:
                try:
                    process.send_signal(signal.SIGKILL)
                except _GONE:
                    continue
            psutil.wait_procs(left, timeout=1.0)
            assert time.monotonic() < deadline_s, f"processes {left} do not end"

    def _left(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.environ().get(RUN_KEY) == self._run_key and _is_running(process):
                    yield process
            except _GONE:
                continue


def _rank_of(process: psutil.Process) -> int | None:
    try:
        env = RankEnv.read(process.environ())
    except (*_GONE, ConfigError):
        return None
    return None if env.is_scheduler else env.rank


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False
