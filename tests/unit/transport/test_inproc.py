"""The in-process channel keeps the contract under random delays."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vpp_ms.plan.placement import Placement
from vpp_ms.transport import Delivery, InProcessNetwork, Route

NUM_MESSAGES = 6


def exchange(placement: Placement, network: InProcessNetwork) -> dict[str, list[Delivery]]:
    """Every link carries NUM_MESSAGES; what came in, per route, in order of delivery."""
    routes = [Route(link.name, link.source, link.target) for link in placement.links()]
    received: dict[str, list[Delivery]] = defaultdict(list)

    def run(rank: int) -> None:
        channel = network.channel(rank)
        channel.open(routes, lambda delivery: received[delivery.route].append(delivery))
        for number in range(NUM_MESSAGES):
            for route in routes:
                if route.source == rank:
                    payload = None if number % 3 == 2 else np.full((number, 2), number)
                    channel.send(route.name, f"{route.name}/{number}".encode(), payload)
        channel.close()
        for route in routes:
            if route.source == rank:
                meter = channel.meters[route.name]
                assert meter.num_messages == NUM_MESSAGES
                assert meter.num_bytes == sum(16 * n for n in range(NUM_MESSAGES) if n % 3 != 2)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(network.num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return received


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["loop", "v"]),
    num_ranks=st.integers(1, 4),
    virtual_stages=st.integers(1, 3),
    slow_rank=st.integers(0, 3),
    seed=st.integers(0, 100),
)
def test_every_route_is_fifo_and_loses_nothing(kind, num_ranks, virtual_stages, slow_rank, seed):
    placement = Placement(kind, num_ranks, virtual_stages)
    network = InProcessNetwork(num_ranks, max_delay_s=0.001, delays_s={slow_rank: 0.004}, seed=seed)
    received = exchange(placement, network)
    assert set(received) == {link.name for link in placement.links()}
    for route, deliveries in received.items():
        assert [d.header.decode() for d in deliveries] == [
            f"{route}/{number}" for number in range(NUM_MESSAGES)
        ]
        for number, delivery in enumerate(deliveries):
            assert delivery.posted_s <= delivery.done_s
            if number % 3 == 2:
                assert delivery.payload is None
            else:
                assert delivery.payload.shape == (number, 2)
                assert (delivery.payload == number).all()


def test_opening_again_replaces_the_receiver_and_keeps_route_and_meter():
    channel = InProcessNetwork(1).channel(0)
    first: list[bytes] = []
    second: list[bytes] = []
    route = Route("self", 0, 0)
    for received in (first, second):
        channel.open([route], lambda delivery, to=received: to.append(delivery.header))
        channel.send("self", b"header", None)
        while not received:
            time.sleep(0.001)
    channel.close()
    assert (first, second) == ([b"header"], [b"header"])
    assert channel.meters["self"].num_messages == 2


def test_a_slow_rank_lets_other_routes_overtake():
    network = InProcessNetwork(3, delays_s={1: 0.2}, seed=1)
    order: list[str] = []
    routes = [Route("slow", 0, 1), Route("quick", 0, 2)]

    def run(rank: int) -> None:
        channel = network.channel(rank)
        channel.open(routes, lambda delivery: order.append(delivery.route))
        if rank == 0:
            channel.send("slow", b"", None)
            channel.send("quick", b"", None)
        channel.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert order == ["quick", "slow"]
