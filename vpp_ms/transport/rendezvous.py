"""`Member`: a rank's line to the hub: all-gather, reports, and word of a lost rank.

When another rank or the hub is lost, a process ends at once with one line on stderr and exit
code `LOST_EXIT_CODE`: whatever it waits for will not come. Only a caller inside `all_gather`
gets a RankError instead and `UNWIND_S` to end by itself.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from vpp_ms.config.environ import RankEnv
from vpp_ms.errors import RankError
from vpp_ms.transport import wire
from vpp_ms.transport.hub import JOIN_TIMEOUT_S, listen

LOST_EXIT_CODE = 3
UNWIND_S = 5.0
FAREWELL_TIMEOUT_S = 5.0
_RETRY_S = 0.1

OnLost = Callable[[RankError, bool], None]


def end_process(error: RankError, waiting: bool) -> None:
    """The default reaction to a loss. `waiting`: a caller of all_gather is told as well."""
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    if waiting:
        time.sleep(UNWIND_S)
    os._exit(LOST_EXIT_CODE)


class Member:
    """One process of the run. Made by `join`; safe to use from several threads.

    `host` is this host's address as the hub's host sees it. `on_lost` runs on the thread that
    watches the hub.
    """

    def __init__(self, env: RankEnv, connection: socket.socket, on_lost: OnLost) -> None:
        self.rank, self.num_ranks = env.rank, env.num_ranks
        self.host: str = connection.getsockname()[0]
        self._connection, self._on_lost = connection, on_lost
        self._hearing = threading.Lock()
        self._send_lock = threading.Lock()
        self._changed = threading.Condition()
        self._gathered: dict[str, list[bytes]] = {}
        self._num_waiting = 0
        self._lost: RankError | None = None
        self._left = threading.Event()
        self._post(wire.Hello(env.rank, env.num_ranks, os.getpid(), self.host, env.run_key))
        self._watcher = threading.Thread(target=self._watch, name="hub-watch", daemon=True)
        self._watcher.start()

    @classmethod
    def join(
        cls,
        env: RankEnv,
        *,
        timeout_s: float = JOIN_TIMEOUT_S,
        on_lost: OnLost = end_process,
    ) -> Member:
        """Connect to the hub; rank 0 starts one first when no launcher does.

        Raises ConfigError when rank 0 cannot host it, RankError when no hub answers within
        `timeout_s`.
        """
        if env.hosts_hub:
            _start_hub(env)
        connection = _connect(env.hub_host, env.hub_port, timeout_s)
        wire.keep_alive(connection)
        return cls(env, connection, on_lost)

    def all_gather(self, name: str, part: bytes = b"") -> list[bytes]:
        """Every rank's part, in rank order; a barrier when the parts are empty.

        Ranks meet by `name`. Raises RankError when a rank or the hub is lost.
        """
        with self._changed:
            if self._lost is None:
                self._post(wire.Gather(name, part))
            self._num_waiting += 1
            self._changed.wait_for(lambda: name in self._gathered or self._lost is not None)
            self._num_waiting -= 1
            if name in self._gathered:
                return self._gathered.pop(name)
            assert self._lost is not None
            raise self._lost

    def report(self, event: dict) -> None:
        """News for the hub's owner, msgpack types only. `phase` is kept: a death names it."""
        self._post(wire.Report(event))

    def report_error(self, text: str, *, user_error: bool = False) -> None:
        """This rank cannot go on; ends the run for all, naming this rank. The caller exits.

        Only the first line of `text` travels. A user's error also goes to stderr: there is no
        stack trace of it.
        """
        line, *_ = text.strip().splitlines() or ["unknown error"]
        if user_error:
            sys.stderr.write(f"{line}\n")
        self._post(wire.Trouble(line, user_error))

    def abort(self, text: str) -> NoReturn:
        """`report_error` and end the process: for threads whose caller cannot unwind."""
        self.report_error(text)
        sys.stderr.flush()
        os._exit(1)

    def leave(self) -> None:
        """Goodbye: nothing is left to do. From here on the launcher may end the process."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._post(wire.Goodbye())
        self._left.wait(FAREWELL_TIMEOUT_S)

    @contextmanager
    def ended_by_kernel(self) -> Iterator[None]:
        """Inside, any word from the hub ends the process, though no Python thread can run.

        MindSpore's init() holds the interpreter's lock until all ranks are there, for minutes
        when one is not; the kernel's SIGIO on the connection needs no lock. The hub says nothing
        while nobody gathers, except that the run is over.
        """
        descriptor = self._connection.fileno()
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._let_the_watcher_hear()
        try:
            yield
        finally:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)

    def _let_the_watcher_hear(self) -> None:
        """Return when nothing has arrived that the watcher has not dealt with."""
        while True:
            with self._hearing:
                if not _has_news(self._connection, wait=False):
                    return
            time.sleep(_RETRY_S)

    def _post(self, message: wire.Message) -> None:
        try:
            with self._send_lock:
                self._connection.sendall(wire.frame(message))
        except OSError:
            pass  # the watcher sees the same end of the connection and says so

    def _watch(self) -> None:
        while True:
            _has_news(self._connection, wait=True)
            with self._hearing:
                if not self._hear():
                    return

    def _hear(self) -> bool:
        """Deal with one message of the hub; False when it was the last."""
        try:
            message = wire.decode_to_member(wire.receive_frame(self._connection))
        except (OSError, EOFError):
            message = wire.Lost("hub", "its process or host is gone")
        match message:
            case wire.Gathered():
                with self._changed:
                    self._gathered[message.name] = message.parts
                    self._changed.notify_all()
                return True
            case wire.Lost():
                self._lose(RankError(message.who, message.what))
            case wire.Goodbye():
                self._left.set()
                self._connection.close()
        return False

    def _lose(self, error: RankError) -> None:
        with self._changed:
            self._lost = error
            waiting = self._num_waiting > 0
            self._changed.notify_all()
        self._on_lost(error, waiting)


def _has_news(connection: socket.socket, *, wait: bool) -> bool:
    """By poll and not by recv: what a recv waits for raises no SIGIO."""
    news = select.poll()
    news.register(connection, select.POLLIN)
    return bool(news.poll(None if wait else 0))


def _start_hub(env: RankEnv) -> None:
    """In a session of its own: it outlives rank 0 for as long as it takes to tell the others."""
    with listen(env.hub_host, env.hub_port) as server:
        descriptor = server.fileno()
        arguments = [str(descriptor), str(env.num_ranks), env.run_key]
        command = [sys.executable, "-m", "vpp_ms.transport.hub_process", *arguments]
        subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True)


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise RankError("hub", f"no answer at {host}:{port} ({error})") from None
            time.sleep(_RETRY_S)
        else:
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
