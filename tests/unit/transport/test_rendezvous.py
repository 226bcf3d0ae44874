"""Hub and members: gathers, reports, and who is named when somebody dies."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vpp_ms.errors import ConfigError, RankError
from vpp_ms.transport import wire
from vpp_ms.transport.hub import Failure, Hub, listen
from vpp_ms.transport.rendezvous import LOST_EXIT_CODE, Member

SLEEP = "print('ready', flush=True)\nimport time\ntime.sleep(60)\n"


def wait_until(condition, timeout_s: float = 5.0) -> float:
    """Seconds until `condition()` held."""
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() < start_s + timeout_s, "did not happen in time"
        time.sleep(0.005)
    return time.monotonic() - start_s


def all_join(meeting) -> list[Member]:
    return [meeting.join(rank) for rank in range(meeting.num_ranks)]


def test_all_gather_is_in_rank_order_and_names_are_reusable(meet):
    meeting = meet(4)
    members = all_join(meeting)

    def rounds(member: Member) -> list[list[bytes]]:
        return [
            member.all_gather(name, f"{name}{member.rank}{turn}".encode() * 1000)
            for turn in range(20)
            for name in ("a", "b")
        ]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(rounds, members))
    expected = [
        [f"{name}{rank}{turn}".encode() * 1000 for rank in range(4)]
        for turn in range(20)
        for name in ("a", "b")
    ]
    assert results == [expected] * 4


def test_a_gather_waits_for_the_last_rank(meet):
    members = all_join(meet(2))
    done = threading.Event()

    def first() -> None:
        members[0].all_gather("x")
        done.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert not done.wait(0.2)
    members[1].all_gather("x")
    assert done.wait(2)
    thread.join()


def test_large_parts(meet):
    members = all_join(meet(2))
    parts = [bytes([rank]) * 30_000_000 for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda m: m.all_gather("big", parts[m.rank]), members))
    assert results == [parts, parts]


def test_reports_reach_the_owner_with_the_rank_in_order(meet):
    meeting = meet(2)
    member = all_join(meeting)[1]
    for number in range(50):
        member.report({"kind": "progress", "tokens": number, "share": 0.5})
    wait_until(lambda: len(meeting.events) == 50)
    assert meeting.events == [
        {"kind": "progress", "tokens": n, "share": 0.5, "rank": 1} for n in range(50)
    ]


def test_goodbyes_end_the_run_without_a_failure(meet):
    meeting = meet(3)
    for member in all_join(meeting):
        assert not meeting.hub.ended.is_set()
        member.leave()
    assert meeting.hub.ended.wait(2)
    assert meeting.hub.failure is None
    assert meeting.hub.left == {0, 1, 2}
    assert meeting.lost == {}


def test_a_killed_rank_is_named_to_all_within_a_second(meet):
    meeting = meet(3)
    victim = meeting.spawn(1, "member.report({'kind': 'phase', 'phase': 'decode'})\n" + SLEEP)
    waiting, busy = meeting.join(0), meeting.join(2)
    with ThreadPoolExecutor(1) as pool:
        gather = pool.submit(waiting.all_gather, "never")
        wait_until(lambda: meeting.hub.phase_of(1) == "decode")
        victim.send_signal(signal.SIGKILL)
        assert wait_until(lambda: len(meeting.lost) == 2) < 1.0
        with pytest.raises(RankError) as raised:
            gather.result(timeout=1)
    expected = f"rank 1: died during decode (pid {victim.pid} on 127.0.0.1)"
    assert str(raised.value) == expected
    assert str(meeting.lost[2]) == expected
    assert meeting.hub.failure == Failure(1, *expected.split(": ", 1), died=True)
    with pytest.raises(RankError):
        busy.all_gather("after")


def test_a_surviving_process_ends_itself_with_one_line(meet):
    meeting = meet(3)
    victim, survivor = meeting.spawn(0, SLEEP), meeting.spawn(1, SLEEP)
    unwinding = meeting.spawn(
        2, "print('ready', flush=True)\ntry:\n  member.all_gather('x')\nexcept ValueError as e:\n"
        "  raise SystemExit(f'caught {e}')\n"
    )  # fmt: skip
    victim.send_signal(signal.SIGKILL)
    line = f"rank 0: died during start (pid {victim.pid} on 127.0.0.1)"
    assert survivor.wait(1.0) == LOST_EXIT_CODE
    assert survivor.communicate()[1] == line + "\n"
    assert unwinding.wait(1.0) == 1
    assert f"caught {line}" in unwinding.communicate()[1]


def test_the_hub_gone_ends_the_processes(meet):
    meeting = meet(2)
    child = meeting.spawn(1, SLEEP)
    meeting.hub.stop()
    assert child.wait(1.0) == LOST_EXIT_CODE
    assert child.communicate()[1].startswith("hub: ")


def test_a_hub_can_be_stopped_at_any_moment():
    """Just made, and just joined: nobody is left on a connection that nobody serves."""
    port = 15_456
    for moment in range(20):
        hub = Hub(listen("127.0.0.1", port), 1, "k", lambda event: None)
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as member:
            member.sendall(wire.frame(wire.Hello(0, 1, 1, "h", "k")))
            time.sleep(0.0003 * moment)
            hub.stop()
            with contextlib.suppress(ConnectionResetError):
                assert member.recv(1) == b""
        assert hub.failure is None


@pytest.mark.parametrize("end", ["stop", "fail"] * 2)
def test_a_process_that_holds_the_interpreter_lock_is_ended_by_the_kernel(meet, end):
    meeting = meet(2)
    child = meeting.spawn(
        0,
        """
        import ctypes
        with member.ended_by_kernel():
            member.report({"kind": "still speaks"})
            print("ready", flush=True)
            ctypes.PyDLL(None).sleep(60)  # does not release the lock
        """,
    )
    time.sleep(0.2)
    assert child.poll() is None
    if end == "stop":
        meeting.hub.stop()
    else:
        meeting.hub.fail(Failure(1, "rank 1", "died"))
    assert child.wait(1.0) == -signal.SIGIO


def test_a_refusal_is_heard_though_the_lock_is_taken_at_once(meet):
    """Word that came before the kernel was asked raises no signal: the watcher has to hear it."""
    meeting = meet(2)
    meeting.hub.fail(Failure(1, "rank 1", "died"))
    assert meeting.hub.ended.wait(2)
    child = meeting.spawn(
        0,
        """
        libc.usleep(20000)  # now the refusal is here
        with member.ended_by_kernel():
            libc.sleep(60)
        """,
        before="""
        import ctypes, fcntl, sys
        libc = ctypes.PyDLL(None)  # calls keep the interpreter lock
        fcntl.fcntl = lambda fd, command, value=0: libc.fcntl(fd, command, value)
        sys.setswitchinterval(1000)
        """,
    )
    assert child.wait(2.0) == LOST_EXIT_CODE


def test_behind_the_guarded_part_word_from_the_hub_is_harmless(meet):
    meeting = meet(1)
    child = meeting.spawn(
        0,
        """
        with member.ended_by_kernel():
            pass
        member.all_gather("x")
        member.leave()
        print("ready", flush=True)
        """,
    )
    assert child.wait(5) == 0


def test_an_error_ends_the_run_for_all(meet):
    meeting = meet(2)
    members = all_join(meeting)
    members[1].report_error("vpp.window: 0; allowed: >= 1", user_error=True)
    wait_until(lambda: 0 in meeting.lost)
    assert str(meeting.lost[0]) == "rank 1: vpp.window: 0; allowed: >= 1"
    assert meeting.hub.failure is not None
    assert meeting.hub.failure.user_error


def test_a_death_is_the_cause_of_the_errors_it_brings_about(meet):
    meeting = meet(3)
    victim = meeting.spawn(2, SLEEP)
    members = [meeting.join(0), meeting.join(1)]
    members[0].report_error("RuntimeError: Send failed")
    victim.send_signal(signal.SIGKILL)
    wait_until(lambda: len(meeting.lost) == 2)
    assert meeting.hub.failure is not None
    assert (meeting.hub.failure.rank, meeting.hub.failure.died) == (2, True)


def test_an_unexpected_error_alone_is_named_after_its_grace(meet):
    meeting = meet(2)
    child = meeting.spawn(
        1,
        "print('ready', flush=True)\nmember.report_error('ValueError: boom')\nraise SystemExit(1)",
    )
    meeting.join(0)
    assert child.wait(2) == 1
    wait_until(lambda: 0 in meeting.lost)
    assert str(meeting.lost[0]) == "rank 1: ValueError: boom"


def test_an_error_whose_rank_has_ended_is_the_cause_of_what_msrun_kills_then(meet):
    meeting = meet(3)
    bystander = meeting.spawn(2, SLEEP)
    raising = (
        "print('ready', flush=True)\nmember.report_error('ValueError: boom')\nraise SystemExit(1)"
    )
    failing = meeting.spawn(1, raising)
    failing.wait(2)
    bystander.send_signal(signal.SIGKILL)
    assert meeting.hub.ended.wait(2)
    assert meeting.hub.failure == Failure(1, "rank 1", "ValueError: boom")


def test_only_the_first_line_of_an_error_travels(meet):
    meeting = meet(1)
    meeting.join(0).report_error("\nValueError: shape\n----\nC++ stack")
    assert meeting.hub.ended.wait(2)
    assert meeting.hub.failure == Failure(0, "rank 0", "ValueError: shape")


def test_abort_reports_and_ends_from_any_thread(meet):
    meeting = meet(1)
    child = meeting.spawn(
        0,
        """
        import threading
        print("ready", flush=True)
        threading.Thread(target=member.abort, args=("OSError: thread",)).start()
        threading.Event().wait(60)
        """,
    )
    assert child.wait(2) == 1
    assert meeting.hub.ended.wait(2)
    assert meeting.hub.failure == Failure(0, "rank 0", "OSError: thread")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"rank": 0}, "joined twice"),
        ({"rank": 5}, "not one of 2 ranks"),
        ({"run_key": "yesterday's"}, "another run"),
        ({"num_ranks": 3}, "another run"),
    ],
)
def test_who_does_not_belong_is_refused_and_disturbs_nobody(meet, changes, what):
    meeting = meet(2)
    members = all_join(meeting)
    refused = meeting.join(**{"rank": 1, **changes})
    with pytest.raises(RankError, match=what):
        refused.all_gather("x")
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda m: m.all_gather("x", b"p"), members)) == [[b"p"] * 2] * 2


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"", b"\0\0\0\x05hello", b"\xff" * 64, b"\0\0\0\x01\x90"]
)
def test_strangers_at_the_port_disturb_nobody(meet, noise):
    meeting = meet(2)
    members = all_join(meeting)
    with socket.create_connection(("127.0.0.1", meeting.port)) as stranger:
        stranger.sendall(noise)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda m: m.all_gather("x", b"p"), members)) == [[b"p"] * 2] * 2
    for member in members:
        member.leave()
    assert meeting.hub.ended.wait(2)
    assert meeting.hub.failure is None


def test_the_scheduler_takes_no_part_in_gathers_but_is_missed(meet):
    meeting = meet(2)
    scheduler = meeting.spawn(-1, SLEEP)
    members = all_join(meeting)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda m: m.all_gather("x"), members)) == [[b"", b""]] * 2
    scheduler.send_signal(signal.SIGKILL)
    wait_until(lambda: len(meeting.lost) == 2)
    assert str(meeting.lost[0]).startswith("msrun's scheduler: died")


def test_rank_0_hosts_the_hub_when_no_launcher_does(meet):
    port = meet(1).port + 600
    env = meet(1).env(0, num_ranks=2)
    envs = [
        type(env)(rank, 2, "127.0.0.1", port, "key", launcher_hosts_hub=False) for rank in (0, 1)
    ]
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(Member.join, envs[1])  # before the hub is there
        time.sleep(0.3)
        members = [Member.join(envs[0]), late.result(timeout=10)]
        assert list(pool.map(lambda m: m.all_gather("x"), members)) == [[b"", b""]] * 2
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be used"):
        Member.join(envs[0])
    for member in members:
        member.leave()
    wait_until(lambda: _is_free(port), timeout_s=5)


def test_no_hub_is_an_error_in_time(meet):
    meeting = meet(1)
    with pytest.raises(RankError, match="no answer at 127.0.0.1:1"):
        Member.join(
            type(meeting.env(0))(0, 1, "127.0.0.1", 1, "key", launcher_hosts_hub=True),
            timeout_s=0.3,
        )


def test_a_port_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="1 to 65535"):
        listen("127.0.0.1", 65_536)


def _is_free(port: int) -> bool:
    try:
        listen("127.0.0.1", port).close()
    except ConfigError:
        return False
    return True
