"""`launch`: start the ranks of one run with msrun, watch them, and leave no process behind.

The launcher hosts the hub, so the hub's socket ends with the launcher and the ranks with it.
Whatever ends a run early is raised as one error that names the rank.
"""

from __future__ import annotations

import queue
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vpp_ms.config.environ import HUB_PORT_OFFSET, hub_environment, inherited
from vpp_ms.engine.cores import core_map
from vpp_ms.engine.processes import LaunchedProcesses
from vpp_ms.errors import ConfigError, RankError
from vpp_ms.transport.hub import Failure, Hub, listen

OnEvent = Callable[[dict], None]
PORTS = range(20_000, 32_000, 2)  # below the ports that systems give to outgoing connections
PORT_TRIES = 50
POLL_S = 0.1
MSRUN = -1  # in place of a rank
MSRUN_NOTICE_S = 1.0  # msrun ends when a rank has, whose word or death explains more
DEATH_NOTICE_S = 0.3  # the hub sees a member's death at once; so long the watch leaves it to it
LAST_WORDS_S = 2.0  # after a failure, for the ranks to write their logs
GOODBYE_S = 0.5  # after all goodbyes; MindSpore takes 2 to 6 s to shut down, which nobody needs
LOG_LINES = 3


def launch(
    argv_of_worker: Sequence[str],
    *,
    num_ranks: int,
    log_dir: Path,
    master_addr: str = "127.0.0.1",
    master_port: int | None = None,
    pin_cores: bool = True,
    timeout_s: float = 3600.0,
    on_event: OnEvent = lambda event: None,
) -> None:
    """Run `python *argv_of_worker` on `num_ranks` ranks of this host until all say goodbye.

    `on_event` gets every report of every rank, on the calling thread. `pin_cores`: one core per
    rank, round robin. Logs go to `log_dir` (worker_N.log, scheduler.log, msrun.log).

    Raises ConfigError when the run cannot start and RankError, naming the rank, when one dies,
    fails or the time is over. In every case, Ctrl-C too, no process of the run is left.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    server, port = _reserve_ports(master_addr, master_port)
    events: queue.SimpleQueue[dict] = queue.SimpleQueue()
    run_key = uuid.uuid4().hex
    hub = Hub(server, num_ranks, run_key, events.put)
    try:
        environment = inherited(
            Path(sys.executable).parent,
            OMP_NUM_THREADS="1",
            **hub_environment(master_addr, port + HUB_PORT_OFFSET, run_key),
        )
        command = _msrun_command(argv_of_worker, num_ranks, log_dir, master_addr, port, pin_cores)
        with (log_dir / "msrun.log").open("wb") as log_file:
            root = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log_file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        processes = LaunchedProcesses(root, run_key, num_ranks)
        try:
            _Watch(hub, processes, events, on_event, log_dir).until_all_left(timeout_s)
        finally:
            processes.end()
    finally:
        hub.stop()


@dataclass
class _Watch:
    """Supervision of a running launch."""

    hub: Hub
    processes: LaunchedProcesses
    events: queue.SimpleQueue[dict]
    on_event: OnEvent
    log_dir: Path
    ended_since_s: dict[int, float] = field(default_factory=dict)

    def until_all_left(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not self.hub.ended.wait(POLL_S):
            self._forward_events()
            self.processes.refresh()
            failure = self._unexplained_end()
            if failure is None and time.monotonic() > deadline_s:
                failure = self._late(timeout_s)
            if failure is not None:
                self.hub.fail(failure)
        failure = self.hub.failure
        if failure is not None and failure.died:
            failure = self._ended_unjoined() or failure
        self.processes.wait_for_ranks(LAST_WORDS_S if failure else GOODBYE_S)
        self._forward_events()
        if failure is not None:
            raise self._error(failure)

    def _forward_events(self) -> None:
        while not self.events.empty():
            self.on_event(self.events.get())

    def _ended_unjoined(self) -> Failure | None:
        """A rank that ended before it joined: then msrun, not fate, killed the one the hub missed.

        Asked at once after the hub's notice; msrun takes up to a second to kill the others.
        """
        for rank in self.processes.ended_ranks():
            if rank not in self.hub.joined:
                return self._death(rank)
        return None

    def _unexplained_end(self) -> Failure | None:
        """A rank, or msrun, that is gone without a word and that the hub did not miss in time."""
        for rank in self.processes.ended_ranks():
            if rank not in self.hub.explained and self._ended_for_s(rank) >= DEATH_NOTICE_S:
                return self._death(rank)
        code = self.processes.root.poll()
        if code is not None and self._ended_for_s(MSRUN) >= MSRUN_NOTICE_S:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Failure(MSRUN, "msrun", how, died=True)
        return self._ended_unjoined()

    def _death(self, rank: int) -> Failure:
        what = f"died during {self.hub.phase_of(rank)} (pid {self.processes.pid_of(rank)})"
        return Failure(rank, f"rank {rank}", what, died=True)

    def _ended_for_s(self, process: int) -> float:
        return time.monotonic() - self.ended_since_s.setdefault(process, time.monotonic())

    def _late(self, timeout_s: float) -> Failure:
        left = sorted(set(range(self.hub.num_ranks)) - self.hub.left)
        phases = ", ".join(f"rank {rank} in {self.hub.phase_of(rank)}" for rank in left)
        return Failure(MSRUN, "launch.timeout_s", f"not done after {timeout_s:g} s: {phases}")

    def _fail(self, failure: Failure) -> None:
        self.hub.fail(failure)
        self.hub.ended.wait()

    def _error(self, failure: Failure) -> RankError:
        if failure.user_error:
            return RankError(failure.who, failure.what)
        name = f"worker_{failure.rank}.log" if failure.rank >= 0 else "msrun.log"
        path = self.log_dir / name
        tail = _last_lines(path)
        hint = f"read {path}" + (f", which ends: {tail}" if tail else "")
        return RankError(failure.who, failure.what, hint=hint)


def _reserve_ports(host: str, master_port: int | None) -> tuple[socket.socket, int]:
    """The hub's listening socket and the scheduler's port right below it.

    The hub's socket is held for the whole run, so it also keeps other launchers away from the
    port below, which the scheduler takes seconds later. Raises ConfigError.
    """
    candidates = random.sample(PORTS, PORT_TRIES) if master_port is None else [master_port]
    for port in candidates:
        try:
            listen(host, port).close()
            return listen(host, port + HUB_PORT_OFFSET), port
        except ConfigError as error:
            refusal = error
    raise refusal


def _msrun_command(
    argv: Sequence[str], num_ranks: int, log_dir: Path, host: str, port: int, pin_cores: bool
) -> list[str]:
    """Raises ConfigError when msrun is not installed beside this interpreter, or no taskset."""
    bin_dir = Path(sys.executable).parent
    msrun = bin_dir / "msrun"
    if not msrun.exists():
        raise ConfigError("msrun", f"not in {bin_dir}", hint="pip install mindspore")
    options = {
        "worker_num": num_ranks,
        "local_worker_num": num_ranks,
        "master_addr": host,
        "master_port": port,
        "log_dir": log_dir,
        "join": True,
        "tail_worker_log": num_ranks,  # nobody's: else a `tail -f` per rank writes into msrun.log
    }
    if pin_cores:
        if shutil.which("taskset") is None:
            hint = "launch.pin_cores: false"
            raise ConfigError("launch.pin_cores", "msrun needs taskset", hint=hint)
        options["bind_core"] = core_map(num_ranks)
    command = [sys.executable, str(msrun), *(f"--{key}={value}" for key, value in options.items())]
    # msrun takes the words python and python3 for an interpreter and finds it in PATH
    return [*command, "python" if (bin_dir / "python").exists() else "python3", *argv]


def _last_lines(path: Path) -> str:
    """The last lines of a log that are not MindSpore's own, on one line."""
    if not path.exists():
        return ""
    lines = path.read_text(errors="replace").splitlines()
    own = [line.strip() for line in lines if line.strip() and not line.startswith("[")]
    return " | ".join(own[-LOG_LINES:])
