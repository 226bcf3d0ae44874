"""`Channel`: what the executor needs of a transport; one instance per rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Route(NamedTuple):
    """One FIFO channel from rank `source` to rank `target`; `name` is the same on both."""

    name: str
    source: int
    target: int


@dataclass(frozen=True)
class Delivery:
    """What came in on one route. `payload` is a tensor ready to use, or None.

    Clock: time.perf_counter of the receiving rank; posted_s when the header had come and the
    payload's receive was posted, done_s when the payload was there.
    """

    route: str
    header: bytes
    payload: Any | None
    num_bytes: int
    posted_s: float
    done_s: float


@dataclass
class LinkMeter:
    """What one route has carried, counted at the sender (`wait_s`: time send() itself took)."""

    num_bytes: int = 0
    num_messages: int = 0
    wait_s: float = 0.0


Receiver = Callable[[Delivery], None]


class Channel(Protocol):
    """Asynchronous FIFO messages between ranks.

    `send` never blocks on the peer and keeps the payload alive until it is sent. Deliveries are
    handed to the receiver callback, in order per route, on the channel's own thread.
    """

    rank: int
    num_ranks: int
    meters: dict[str, LinkMeter]

    def open(self, routes: Sequence[Route], receiver: Receiver) -> None:
        """Make the routes that touch this rank; collective: every rank passes the same list.

        May be called again (another method of a comparison): known routes are reused and the
        receiver is replaced.
        """

    def send(self, route: str, header: bytes, payload: Any | None) -> None: ...

    def barrier(self, name: str) -> None:
        """Until all ranks are here. Raises RankError when a rank is lost."""

    def close(self) -> None:
        """Orderly teardown: drains sends, then a barrier, then the sockets."""
