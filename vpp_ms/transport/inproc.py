"""`InProcessNetwork`: the `Channel` among threads of one process, for tests, with delays.

Messages of one route arrive in order; each waits a random time on the way, so messages of
different routes overtake each other as they do between hosts.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from vpp_ms.transport.channel import Delivery, LinkMeter, Receiver, Route

_Letter = tuple[bytes, Any] | None  # None ends the route's thread


class InProcessNetwork:
    """`num_ranks` channels that reach each other; give `channel(rank)` to the rank's thread.

    Every message is under way for a random time up to `max_delay_s`. `delays_s` overrides that
    limit for what single ranks receive: one slowed rank. `seed` makes the draws repeatable per
    route.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        max_delay_s: float = 0.0,
        delays_s: dict[int, float] | None = None,
        seed: int = 0,
        timeout_s: float = 30.0,
    ) -> None:
        self.num_ranks = num_ranks
        self._max_delay_s, self._delays_s, self._seed = max_delay_s, delays_s or {}, seed
        self._barrier = threading.Barrier(num_ranks, timeout=timeout_s)
        self._lines: dict[Route, queue.SimpleQueue[_Letter]] = {}
        self._lock = threading.Lock()
        self._channels = [InProcessChannel(self, rank) for rank in range(num_ranks)]

    def channel(self, rank: int) -> InProcessChannel:
        return self._channels[rank]

    def line(self, route: Route) -> queue.SimpleQueue[_Letter]:
        """The route's queue, the same for both ends."""
        with self._lock:
            return self._lines.setdefault(route, queue.SimpleQueue())

    def wait_for_all(self) -> None:
        """Raises threading.BrokenBarrierError when a rank does not come in time."""
        self._barrier.wait()

    def delay(self, route: Route) -> random.Random:
        return random.Random(f"{self._seed}/{route.name}")

    def max_delay_s(self, route: Route) -> float:
        return self._delays_s.get(route.target, self._max_delay_s)


class InProcessChannel:
    """One rank's end; see `Channel`. Payloads are handed over as they are, not copied."""

    def __init__(self, network: InProcessNetwork, rank: int) -> None:
        self.rank, self.num_ranks = rank, network.num_ranks
        self.meters: dict[str, LinkMeter] = {}
        self._network = network
        self._routes: dict[str, Route] = {}
        self._threads: list[threading.Thread] = []
        self._deliver_lock = threading.Lock()
        self._receiver: Receiver | None = None

    def open(self, routes: Sequence[Route], receiver: Receiver) -> None:
        self._receiver = receiver
        for route in routes:
            if self.rank not in (route.source, route.target) or route.name in self._routes:
                continue
            self._routes[route.name] = route
            if route.source == self.rank:
                self.meters[route.name] = LinkMeter()
            if route.target == self.rank:
                thread = threading.Thread(target=self._receive, args=(route,), daemon=True)
                self._threads.append(thread)
                thread.start()
        self._network.wait_for_all()

    def send(self, route: str, header: bytes, payload: Any | None) -> None:
        start_s = time.perf_counter()
        meter = self.meters[route]
        self._network.line(self._routes[route]).put((header, payload))
        meter.num_messages += 1
        meter.num_bytes += _num_bytes(payload)
        meter.wait_s += time.perf_counter() - start_s

    def barrier(self, name: str) -> None:
        self._network.wait_for_all()

    def close(self) -> None:
        for route in self._routes.values():
            if route.source == self.rank:
                self._network.line(route).put(None)
        for thread in self._threads:
            thread.join()
        self._network.wait_for_all()

    def _receive(self, route: Route) -> None:
        line, draw = self._network.line(route), self._network.delay(route)
        while (letter := line.get()) is not None:
            posted_s = time.perf_counter()
            time.sleep(draw.uniform(0, self._network.max_delay_s(route)))
            header, payload = letter
            delivery = Delivery(
                route.name, header, payload, _num_bytes(payload), posted_s, time.perf_counter()
            )
            with self._deliver_lock:
                assert self._receiver is not None
                self._receiver(delivery)


def _num_bytes(payload: Any | None) -> int:
    return 0 if payload is None else payload.nbytes
