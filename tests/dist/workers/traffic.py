"""Three real ranks that talk over `P2PChannel`; every rank reports what it measured.

Usage: traffic.py TAG. Checks that need no figure are assertions here: a failed one ends the run
and names the rank and the line.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import chain

import numpy as np

from vpp_ms.config.environ import RankEnv
from vpp_ms.plan.placement import Placement
from vpp_ms.transport.channel import Delivery, Route
from vpp_ms.transport.rendezvous import Member

PLACEMENTS = [Placement("plain", 3), Placement("loop", 3, 2), Placement("v", 3, 2)]
SHAPES = [(7, 3), None, (0, 5), (), (512, 512), (1,), (3, 5, 2), None, (129, 64)]
DTYPES = ["float32", "float16", "bfloat16", "int32"]
ROUNDS = 3
IDLE_S = 5.0
STALL_S = 1.5
BIG = (1024, 1024)  # 4 MiB of float32
WAIT_S = 60.0


class Rank:
    def __init__(self, member: Member, env: RankEnv) -> None:
        import mindspore as ms

        from vpp_ms.transport.mindspore_p2p import P2PChannel

        ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
        self.ms, self.rank, self.member = ms, env.rank, member
        self.channel = P2PChannel(member, env)

    def open(self, routes: list[Route]) -> queue.SimpleQueue[Delivery]:
        arrived: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self.channel.open(routes, arrived.put)
        return arrived

    def message(self, route: str, number: int):
        """The same on both ends: header and a tensor whose values tell route and number."""
        shape = SHAPES[number % len(SHAPES)]
        header = f"{route}#{number}".encode() * (1 + 1000 * (number % 2))
        if shape is None:
            return header, None
        seed = sum(route.encode()) * 1000 + number
        values = np.random.default_rng(seed).integers(-100, 100, shape)
        dtype = DTYPES[number % len(DTYPES)]
        return header, self.ms.Tensor(values.astype(np.float32)).astype(getattr(self.ms, dtype))

    def same(self, got, expected) -> bool:
        if expected is None or got is None:
            return got is None and expected is None
        assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
        to_numpy = [t.astype(self.ms.float32).asnumpy() for t in (got, expected)]
        return np.array_equal(*to_numpy)


def all_placements(self: Rank) -> Iterator[dict]:
    """Exact values, FIFO and bytes on all routes; the channel is opened anew for each."""
    sent_before = dict.fromkeys({n for p in PLACEMENTS for n in names(p)}, (0, 0))
    num_messages = ROUNDS * len(SHAPES)
    for placement in PLACEMENTS:
        routes = [Route(link.name, link.source, link.target) for link in placement.links()]
        arrived = self.open(routes)
        mine = [r.name for r in routes if r.source == self.rank]
        for number in range(num_messages):
            for name in mine:
                self.channel.send(name, *self.message(name, number))
        incoming = [r.name for r in routes if r.target == self.rank]
        seen = dict.fromkeys(incoming, 0)
        for _ in range(num_messages * len(incoming)):
            delivery = arrived.get(timeout=WAIT_S)
            header, payload = self.message(delivery.route, seen[delivery.route])
            assert delivery.header == header, f"{delivery.route}: out of order"
            assert self.same(delivery.payload, payload), f"{header[:40]!r}: other values"
            assert delivery.num_bytes == (0 if payload is None else payload.nbytes)
            assert delivery.posted_s <= delivery.done_s
            seen[delivery.route] += 1
        for name in mine:
            meter, (messages, num_bytes) = self.channel.meters[name], sent_before[name]
            sent_before[name] = (meter.num_messages, meter.num_bytes)
            yield {
                "check": "meter",
                "placement": placement.kind,
                "route": name,
                "messages": meter.num_messages - messages,
                "bytes": meter.num_bytes - num_bytes,
                "expected_bytes": sum(map(num_payload_bytes, range(num_messages))),
            }
        self.channel.barrier("next placement")


def num_payload_bytes(number: int) -> int:
    shape = SHAPES[number % len(SHAPES)]
    width = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4}[DTYPES[number % len(DTYPES)]]
    return 0 if shape is None else int(np.prod(shape)) * width


def names(placement: Placement) -> list[str]:
    return [link.name for link in placement.links()]


def views(self: Rank) -> Iterator[dict]:
    """Slices and transposes of a larger tensor arrive as their own values."""
    arrived = self.open([Route("views", 0, 1)])
    base = self.ms.Tensor(np.arange(60, dtype=np.float32).reshape(10, 6))
    cases = [base[2:5], base[:, 1:3], base.T, base[::3]]
    if self.rank == 0:
        for case in cases:
            self.channel.send("views", b"", case)
    if self.rank == 1:
        for case in cases:
            assert self.same(arrived.get(timeout=WAIT_S).payload, case.contiguous())
    self.channel.barrier("views")
    yield {"check": "views", "exact": True}


def stalled_receiver(self: Rank) -> Iterator[dict]:
    """The receiver sleeps in its callback: sends return, the tensors live, all arrives."""
    num_messages = 12
    received: list[float] = []
    stalled, done = threading.Event(), threading.Event()

    def receive(delivery: Delivery) -> None:
        if not stalled.is_set():
            stalled.set()
            time.sleep(STALL_S)
        received.append(float(delivery.payload.asnumpy().sum() / np.prod(BIG)))
        if len(received) == num_messages:
            done.set()

    self.channel.open([Route("stalled", 0, 2)], receive)
    if self.rank == 0:
        start_s = time.perf_counter()
        for number in range(num_messages):
            tensor = self.ms.Tensor(np.full(BIG, number, np.float32))
            self.channel.send("stalled", b"", tensor)
            del tensor
        yield {
            "check": "stalled",
            "sending_s": time.perf_counter() - start_s,
            "metered_s": self.channel.meters["stalled"].wait_s,
        }
        for number in range(40):  # other tensors want the memory
            self.ms.Tensor(np.full(BIG, -1.0 - number, np.float32)) + 1
    if self.rank == 2:
        assert done.wait(WAIT_S)
        assert received == [float(number) for number in range(num_messages)], received
    self.channel.barrier("stalled")


def overlap(self: Rank) -> Iterator[dict]:
    """Messages are received while the main thread is inside one long computation."""
    arrived = self.open([Route("overlap", 0, 1)])
    if self.rank == 0:
        time.sleep(0.3)
        for _ in range(5):
            time.sleep(0.1)
            self.channel.send("overlap", b"", self.ms.Tensor(np.ones(BIG, np.float32)))
    if self.rank == 1:
        matrix = self.ms.Tensor(np.eye(2048, dtype=np.float32))
        matmul = self.ms.ops.MatMul()
        start_s = time.perf_counter()
        while time.perf_counter() < start_s + 3.0:
            matmul(matrix, matrix).asnumpy()
        end_s = time.perf_counter()
        deliveries = [arrived.get(timeout=WAIT_S) for _ in range(5)]
        yield {
            "check": "overlap",
            "inside": sum(start_s < d.done_s < end_s for d in deliveries),
            "receive_s": sorted(d.done_s - d.posted_s for d in deliveries),
        }
    self.channel.barrier("overlap")


def idle(self: Rank) -> Iterator[dict]:
    """CPU time of the whole process while it waits for a message."""
    arrived = self.open([Route("idle", 0, 1), Route("idle back", 2, 0)])
    self.channel.barrier("idle")
    cpu_s, start_s = time.process_time(), time.perf_counter()
    try:
        arrived.get(timeout=IDLE_S)
        raise AssertionError("nothing was sent")
    except queue.Empty:
        waited_s = time.perf_counter() - start_s
    yield {"check": "idle", "cpu_share": (time.process_time() - cpu_s) / waited_s}
    self.channel.barrier("idle")


def main() -> int:
    env = RankEnv.read()
    if env.is_scheduler:
        from vpp_ms.transport.mindspore_p2p import serve_scheduler

        serve_scheduler(env)
        return 0
    member = Member.join(env)
    try:
        rank = Rank(member, env)
        checks = chain.from_iterable(
            check(rank) for check in (all_placements, views, stalled_receiver, overlap, idle)
        )
        for figures in checks:
            member.report(figures)
        rank.channel.close()
    except Exception as error:
        traceback.print_exc()
        member.report_error(f"{type(error).__name__}: {error}")
        return 1
    member.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
