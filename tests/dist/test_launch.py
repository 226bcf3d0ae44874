"""Launch and supervision on real msrun: every way a run can end, and that nothing is left."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from vpp_ms.engine.launch import PORTS, launch
from vpp_ms.errors import ConfigError, RankError
from vpp_ms.transport.hub import listen

LIGHT = str(Path(__file__).parent / "workers/light.py")
STUCK = str(Path(__file__).parent / "workers/stuck.py")
END_S = 10.0  # from the kill to the error: about 1 s, on a machine without other work


class Run:
    """A launch of light ranks in this process that kills when all have reached a phase."""

    def __init__(self, tmp_path: Path, *arguments: str, num_ranks: int = 2, **changes) -> None:
        self.events: list[dict] = []
        self.killed_s = 0.0
        self._victim: tuple[str, int] | None = None
        self._launch = lambda: launch(
            [LIGHT, str(tmp_path), *arguments],
            **{
                "num_ranks": num_ranks,
                "log_dir": tmp_path / "log",
                "timeout_s": 60,
                "on_event": self._on_event,
            }
            | changes,
        )

    def pids(self, phase: str) -> dict[int, int]:
        return {e["rank"]: e["pid"] for e in self.events if e["phase"] == phase}

    def complete(self) -> None:
        self._launch()

    def fails(self, *, kill: tuple[str, int] | None = None) -> RankError:
        """`kill`: phase and rank; rank -1 is msrun."""
        self._victim = kill
        with pytest.raises(RankError) as raised:
            self._launch()
        if kill is not None:
            assert 0 < time.monotonic() - self.killed_s < END_S
        return raised.value

    def _on_event(self, event: dict) -> None:
        self.events.append(event)
        if self._victim is None or self.killed_s:
            return
        phase, rank = self._victim
        pids = self.pids(phase)
        if len(pids) == 2:
            pid = pids[rank] if rank >= 0 else psutil.Process(pids[0]).ppid()
            os.kill(pid, signal.SIGKILL)
            self.killed_s = time.monotonic()


def test_a_good_run(tmp_path, nothing_left):
    run = Run(tmp_path, num_ranks=3)
    run.complete()
    nothing_left()
    assert [e["phase"] for e in run.events if e["rank"] == 2] == ["load", "prefill", "decode"]
    assert len(run.events) == 9
    cores = sorted(os.sched_getaffinity(0))
    for event in run.events:
        assert event["cores"] == [cores[event["rank"] % len(cores)]]
        assert event["omp"] == "1"
        assert Path(event["python"]).parent == Path(sys.executable).parent
    assert {path.name for path in (tmp_path / "log").iterdir()} >= {
        "msrun.log",
        "scheduler.log",
        "worker_0.log",
        "worker_2.log",
    }


def test_ranks_may_roam(tmp_path, nothing_left):
    run = Run(tmp_path, num_ranks=1, pin_cores=False)
    run.complete()
    assert {tuple(e["cores"]) for e in run.events} == {tuple(sorted(os.sched_getaffinity(0)))}


@pytest.mark.parametrize("phase", ["load", "prefill", "decode"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank(tmp_path, nothing_left, phase, rank):
    run = Run(tmp_path, "--until", phase)
    error = run.fails(kill=(phase, rank))
    nothing_left()
    pid = run.pids(phase)[rank]
    assert str(error).startswith(f"rank {rank}: died during {phase} (pid {pid}")
    assert f"worker_{rank}.log" in str(error)


def test_msrun_killed(tmp_path, nothing_left):
    error = Run(tmp_path, "--until", "prefill").fails(kill=("prefill", -1))
    nothing_left()
    assert str(error).startswith("msrun: was killed by signal 9")


def test_a_rank_that_ends_before_it_joins_is_named_with_its_last_words(tmp_path, nothing_left):
    error = Run(tmp_path, "--how", "unjoined").fails()
    nothing_left()
    assert str(error).startswith("rank 1: died during start (pid ")
    assert "worker_1.log" in str(error)
    assert "RuntimeError: boom before the hub" in str(error)


def test_a_user_error_comes_through_as_its_one_line(tmp_path, nothing_left):
    error = Run(tmp_path, "--until", "load", "--how", "user").fails()
    nothing_left()
    assert str(error) == "rank 1: vpp.window: 0; allowed: >= 1"


def test_an_exception_points_to_the_log_and_quotes_it(tmp_path, nothing_left):
    error = Run(tmp_path, "--until", "prefill", "--how", "raise", "--rank", "0").fails()
    nothing_left()
    assert str(error).startswith("rank 0: ValueError: boom; try: read ")
    assert "worker_0.log, which ends: " in str(error)
    assert str(error).endswith("| ValueError: boom")
    assert "Traceback (most recent call last)" in (tmp_path / "log/worker_0.log").read_text()


def test_leaving_without_a_goodbye_is_a_death(tmp_path, nothing_left):
    error = Run(tmp_path, "--until", "decode", "--how", "exit").fails()
    nothing_left()
    assert str(error).startswith("rank 1: died during decode")


def test_time_is_over(tmp_path, nothing_left):
    error = Run(tmp_path, "--until", "decode", timeout_s=6).fails()
    nothing_left()
    assert str(error).startswith(
        "launch.timeout_s: not done after 6 s: rank 0 in decode, rank 1 in decode"
    )


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_the_launcher_ended(tmp_path, nothing_left, spawn_launcher, sent):
    launcher = spawn_launcher([LIGHT, str(tmp_path), "--until", "load"], tmp_path / "log", 2)
    assert launcher.stdout is not None
    events = [launcher.stdout.readline() for _ in range(2)]
    assert all("'load'" in event for event in events), launcher.communicate()
    launcher.send_signal(sent)
    assert launcher.wait(END_S) != 0
    launcher.communicate()
    nothing_left(within_s=0.0 if sent == signal.SIGINT else END_S)


def test_a_taken_port_is_refused_before_anything_starts(tmp_path, nothing_left):
    for taken, asked in ((15_337, 15_337), (15_338, 15_337)):  # the master's, the hub's
        with listen("127.0.0.1", taken), pytest.raises(ConfigError) as raised:
            Run(tmp_path, master_port=asked).complete()
        assert f"launch.master_port: 127.0.0.1:{taken} cannot be used" in str(raised.value)
    assert not (tmp_path / "log/msrun.log").exists()


def test_an_address_of_another_host_is_refused(tmp_path, nothing_left):
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:\d+ cannot be used"):
        Run(tmp_path, master_addr="192.0.2.1").complete()


def test_eight_launchers_at_once(tmp_path, nothing_left, spawn_launcher):
    launchers = [spawn_launcher([LIGHT, str(tmp_path)], tmp_path / f"log{n}", 1) for n in range(8)]
    outputs = [launcher.communicate(timeout=60) for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0] * 8, outputs
    ports = {int(port) for out, _ in outputs for port in re.findall(r"'port': '(\d+)'", out)}
    assert len(ports) == 8
    assert ports <= set(PORTS)


def test_the_launcher_killed_while_ranks_hold_their_lock(tmp_path, nothing_left, spawn_launcher):
    launcher = spawn_launcher([STUCK, str(tmp_path)], tmp_path / "log", 2)
    assert launcher.stdout is not None
    events = [launcher.stdout.readline() for _ in range(2)]
    assert all("'init'" in event for event in events), launcher.communicate()
    time.sleep(2.0)  # rank 0 and the scheduler are inside init() now
    launcher.kill()
    nothing_left(within_s=END_S)


def start_msrun(argv_of_worker: list[str], **options: object) -> subprocess.Popen:
    bin_dir = Path(sys.executable).parent
    flags = [f"--{key}={value}" for key, value in options.items()]
    return subprocess.Popen(
        [bin_dir / "msrun", *flags, "--join=True", "python", *argv_of_worker],
        env=os.environ | {"PATH": f"{bin_dir}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def rank_process(msrun: subprocess.Popen, rank: int) -> psutil.Process:
    """The rank among msrun's children, which are the scheduler and a `tail` per rank besides."""
    for process in psutil.Process(msrun.pid).children():
        try:
            variables, name = process.environ(), process.name()
        except psutil.Error:
            continue  # the scheduler of these ranks ends at once
        who = (variables.get("MS_ROLE"), variables.get("MS_NODE_ID"))
        if name.startswith("python") and who == ("MS_WORKER", str(rank)):
            return process
    raise AssertionError(f"no process of rank {rank}")


def wait_for(log: Path, word: str) -> None:
    deadline_s = time.monotonic() + 30
    while not (log.exists() and word in log.read_text()):
        assert time.monotonic() < deadline_s, f"{word!r} not in {log}"
        time.sleep(0.1)


def test_plain_msrun_with_a_killed_rank_while_the_others_hold_their_lock(tmp_path, nothing_left):
    """Without the kernel's help msrun would wait for its scheduler for 40 s."""
    msrun = start_msrun(
        [STUCK, str(tmp_path)],
        worker_num=2,
        local_worker_num=2,
        master_port=random.choice(PORTS),
        log_dir=tmp_path / "log",
    )
    wait_for(tmp_path / "log/worker_1.log", "in init")
    time.sleep(2.0)
    rank_process(msrun, 1).kill()
    assert msrun.wait(END_S) == 1
    nothing_left(within_s=END_S)


class Hosts:
    """Two msrun with one rank each, as on two hosts; rank 0 hosts the hub."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.port = random.choice(PORTS)
        self.logs = [tmp_path / f"host{node}/worker_{node}.log" for node in range(2)]
        self._arguments = [LIGHT, str(tmp_path), *arguments]
        self.msruns = [self._start(node) for node in (0, 1)]

    def _start(self, node: int) -> subprocess.Popen:
        return start_msrun(
            self._arguments,
            worker_num=2,
            local_worker_num=1,
            master_port=self.port,
            node_rank=node,
            log_dir=self.logs[node].parent,
        )

    def hub_is_there(self) -> bool:
        found = [
            p.info for p in psutil.process_iter(["cmdline"]) if f"{self.port}/2" in str(p.info)
        ]
        return bool(found)

    def end(self) -> None:
        for msrun in self.msruns:
            for process in psutil.Process(msrun.pid).children() if msrun.poll() is None else ():
                process.kill()
            msrun.kill()
            msrun.wait()


def test_plain_msrun_on_two_hosts(tmp_path, nothing_left):
    hosts = Hosts(tmp_path)
    try:
        assert [msrun.wait(30) for msrun in hosts.msruns] == [0, 0]
        assert all("in decode" in log.read_text() for log in hosts.logs)
    finally:
        hosts.end()


@pytest.mark.parametrize("rank", [0, 1])
def test_plain_msrun_with_a_killed_rank(tmp_path, nothing_left, rank):
    hosts = Hosts(tmp_path, "--until", "prefill")
    try:
        wait_for(hosts.logs[1 - rank], "in prefill")
        assert hosts.hub_is_there()
        victim = rank_process(hosts.msruns[rank], rank)
        victim.kill()
        assert [msrun.wait(END_S) for msrun in hosts.msruns] == [1, 1]
        line = f"rank {rank}: died during prefill (pid {victim.pid} on 127.0.0.1)"
        assert line in hosts.logs[1 - rank].read_text()
    finally:
        hosts.end()
    nothing_left(within_s=END_S)
    deadline_s = time.monotonic() + END_S
    while hosts.hub_is_there():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
