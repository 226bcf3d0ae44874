"""`Hub`: where the ranks of one run meet, and where a death is noticed.

One TCP connection per member. The kernel closes it when the process ends, however it ends, so a
connection that ends without a goodbye is a death: no heartbeat, and no false alarm while a rank
compiles. The first death or error ends the run; every other member is told whose it was.

A launcher hosts it in a thread; without one, rank 0 starts it as a process, see `hub_process`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from vpp_ms.errors import ConfigError
from vpp_ms.transport import wire

OnEvent = Callable[[dict], None]
JOIN_TIMEOUT_S = 60.0
HELLO_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
TROUBLE_GRACE_S = 0.5  # an error may be the echo of a death: so long, or until its rank ends too


@dataclass(frozen=True)
class Failure:
    """What ended the run. `rank` is -1 when no rank did; `died`: without a word of its own."""

    rank: int
    who: str
    what: str
    died: bool = False
    user_error: bool = False


@dataclass
class _Seat:
    """One connected member."""

    rank: int
    pid: int
    host: str
    writer: asyncio.StreamWriter
    phase: str = "start"

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else "msrun's scheduler"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError when the address is taken or not of this host."""
    if not 0 < port < 1 << 16:
        raise ConfigError("launch.master_port", port, allowed="1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            "launch.master_port",
            f"{host}:{port} cannot be used ({error.strerror or error})",
            hint="leave it out (a free port is chosen), or give another one",
        ) from None


class Hub:
    """Serves `num_ranks` members on `server` from a thread of its own.

    `on_event` is called on that thread with every report, `rank` added. `failure`, `joined`,
    `left` and `explained` may be read at any time.
    """

    def __init__(
        self, server: socket.socket, num_ranks: int, run_key: str, on_event: OnEvent
    ) -> None:
        self.num_ranks = num_ranks
        self._server, self._run_key = server, run_key
        self._on_event = on_event
        self._seats: dict[int, _Seat] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._stopping = False
        self._parts: dict[str, dict[int, bytes]] = {}
        self._troubles: dict[int, Failure] = {}
        self.failure: Failure | None = None
        self.joined: set[int] = set()
        self.left: set[int] = set()
        self.explained: set[int] = set()  # said goodbye or what troubles them: they may end
        self.ended = threading.Event()  # failed, or all ranks have left
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self._started = threading.Event()
        self._thread.start()
        self._started.wait()

    @property
    def all_left(self) -> bool:
        return len(self.left) == self.num_ranks

    def fail(self, failure: Failure) -> None:
        """End the run for a reason that the owner knows; all members are told."""
        self._loop.call_soon_threadsafe(self._fail, failure)

    def phase_of(self, rank: int) -> str:
        """The phase that the rank reported last; "start" before."""
        seat = self._seats.get(rank)
        return "start" if seat is None else seat.phase

    def stop(self) -> None:
        """Close every connection; members that have not left take it for a loss."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        start = asyncio.start_server(self._serve, sock=self._server, limit=1 << 20)
        server = self._loop.run_until_complete(start)
        self._loop.call_soon(self._started.set)
        self._loop.run_forever()
        self._loop.run_until_complete(self._close_connections(server))
        self._loop.close()

    async def _close_connections(self, server: asyncio.Server) -> None:
        """What is written is sent first; who does not read it in time is cut off.

        The server comes last: asyncio would lose a connection that it is just accepting.
        """
        self._stopping = True
        deadline_s = self._loop.time() + CLOSE_TIMEOUT_S
        while serving := asyncio.all_tasks() - {asyncio.current_task()}:
            late = self._loop.time() > deadline_s
            for writer in self._writers:
                writer.transport.abort() if late else writer.close()
            await asyncio.wait(serving, timeout=0.05)
        server.close()
        await asyncio.sleep(0)  # the last connections close behind their tasks

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            seat = await asyncio.wait_for(self._admit(reader, writer), HELLO_TIMEOUT_S)
            if seat is not None:
                await self._converse(seat, reader)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            pass  # not one of us
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _converse(self, seat: _Seat, reader: asyncio.StreamReader) -> None:
        try:
            while self._handle(seat, wire.decode_to_hub(await wire.read_frame(reader))):
                pass
        except (OSError, EOFError, ValueError):
            self._mourn(seat)

    async def _admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Seat | None:
        hello = wire.decode_to_hub(await wire.read_frame(reader))
        if not isinstance(hello, wire.Hello):
            return None
        refusal = self._refusal(hello)
        if refusal is not None:
            writer.write(wire.frame(refusal))
            await writer.drain()
            return None
        wire.keep_alive(writer.get_extra_info("socket"))
        seat = _Seat(hello.rank, hello.pid, hello.host, writer)
        self._seats[hello.rank] = seat
        self.joined.add(hello.rank)
        return seat

    def _refusal(self, hello: wire.Hello) -> wire.Lost | None:
        who = f"rank {hello.rank}"
        if self.failure is not None:
            return wire.Lost(self.failure.who, self.failure.what)
        if (hello.run_key, hello.num_ranks) != (self._run_key, self.num_ranks):
            return wire.Lost(who, "belongs to another run than the hub at this address")
        if hello.rank in self._seats or not -1 <= hello.rank < self.num_ranks:
            return wire.Lost(who, f"joined twice or is not one of {self.num_ranks} ranks")
        return None

    def _handle(self, seat: _Seat, message: wire.ToHub) -> bool:
        """Act on one message; False when it was the member's last."""
        match message:
            case wire.Gather():
                self._gather(seat, message)
            case wire.Report():
                seat.phase = str(message.event.get("phase", seat.phase))
                self._on_event({**message.event, "rank": seat.rank})
            case wire.Trouble():
                self._trouble(seat, message)
            case wire.Goodbye():
                seat.writer.write(wire.frame(message))
                self._leave(seat)
                return False
            case wire.Hello():
                raise ValueError("a second hello")
        return True

    def _leave(self, seat: _Seat) -> None:
        self.explained.add(seat.rank)
        if seat.rank >= 0:
            self.left.add(seat.rank)
        if self.all_left:
            self.ended.set()

    def _gather(self, seat: _Seat, message: wire.Gather) -> None:
        parts = self._parts.setdefault(message.name, {})
        parts[seat.rank] = message.part
        if len(parts) == self.num_ranks:
            del self._parts[message.name]
            self._tell(wire.Gathered(message.name, [parts[r] for r in range(self.num_ranks)]))

    def _trouble(self, seat: _Seat, message: wire.Trouble) -> None:
        self.explained.add(seat.rank)
        failure = Failure(seat.rank, seat.name, message.text, user_error=message.user_error)
        self._troubles[seat.rank] = failure
        self._loop.call_later(0 if message.user_error else TROUBLE_GRACE_S, self._fail, failure)

    def _mourn(self, seat: _Seat) -> None:
        trouble = self._troubles.get(seat.rank)
        if trouble is not None:
            self._fail(trouble)
        elif seat.rank not in self.explained:
            what = f"died during {seat.phase} (pid {seat.pid} on {seat.host})"
            self._fail(Failure(seat.rank, seat.name, what, died=True))
        self.explained.add(seat.rank)

    def _fail(self, failure: Failure) -> None:
        if self.failure is None and not self.all_left and not self._stopping:
            self.failure = failure
            self._tell(wire.Lost(failure.who, failure.what))
            self.ended.set()

    def _tell(self, message: wire.ToMember) -> None:
        data = wire.frame(message)
        is_part = isinstance(message, wire.Gathered)
        for seat in self._seats.values():
            if seat.rank in self.left or (is_part and seat.rank < 0):
                continue
            if not seat.writer.is_closing():
                seat.writer.write(data)
