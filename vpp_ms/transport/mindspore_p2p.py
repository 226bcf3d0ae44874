"""`P2PChannel`: the payload over MindSpore point-to-point, the header over pyzmq behind it.

The only file of the room that imports MindSpore. One path serves both backends: mccl on CPU and
hccl on Ascend (not yet run on hardware).

A receive that waits inside MCCL burns a core, so the order is: isend the payload, then push the
header; the receiver posts the payload's receive only when its header has come. All MindSpore
communication of a rank is done by one thread, which otherwise sleeps in a zmq receive: waiting
costs no CPU, and receiving overlaps computing. The receiver acknowledges every message; until
then the sender keeps the tensor alive, and `close` waits for it.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import mindspore as ms
import msgspec
import numpy as np
import zmq
from mindspore import mint
from mindspore.communication import create_group, init

from vpp_ms.config.environ import RankEnv
from vpp_ms.transport.channel import Delivery, LinkMeter, Receiver, Route
from vpp_ms.transport.rendezvous import Member

DTYPES = {str(d): d for d in (ms.float32, ms.float16, ms.bfloat16, ms.int32, ms.int64, ms.int8)}
_OUTBOX = "inproc://outbox"


class _Kind:
    """First frame of every zmq message."""

    DATA = b"d"  # route, envelope, header: a payload is under way
    ACK = b"a"  # route: the oldest message on it has been received
    WAKE = b"w"  # something lies in the outbox
    STOP = b"s"


class _Envelope(msgspec.Struct, array_like=True):
    """What the channel adds to a header. `dtype` is None when there is no payload."""

    dtype: str | None = None
    shape: tuple[int, ...] = ()


class _Parcel(NamedTuple):
    route: Route
    header: bytes
    payload: Any | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Envelope).decode


def serve_scheduler(env: RankEnv) -> None:
    """What msrun's scheduler process has to do: lead the ranks together until they are gone."""
    member = Member.join(env)
    with member.ended_by_kernel():
        init()
    member.leave()


class P2PChannel:
    """The rank's `Channel`. Making one is collective; it initialises MindSpore's communication.

    Set the MindSpore context (mode, device target) before. Payloads: tensors of `DTYPES`, any
    shape, or numpy arrays of these, which arrive as tensors. Deliveries come on the channel's
    own thread.
    """

    def __init__(self, member: Member, env: RankEnv) -> None:
        self.rank, self.num_ranks = env.rank, env.num_ranks
        self.meters: dict[str, LinkMeter] = {}
        self._member = member
        self._routes: dict[str, Route] = {}
        self._receiver: Receiver = _refuse
        self._outbox: deque[_Parcel] = deque()
        self._in_flight: dict[str, deque[Any]] = {}
        self._num_unsent = 0  # in the outbox or not acknowledged
        self._all_sent = threading.Condition()
        _init_groups(member)
        self._zmq = zmq.Context()
        self._zmq.setsockopt(zmq.IPV6, 1)
        self._inbox = self._zmq.socket(zmq.PULL)
        self._inbox.set_hwm(0)
        self._inbox.bind(_OUTBOX)
        port = self._inbox.bind_to_random_port(_tcp(member.host))
        self._waker = self._push_socket(_OUTBOX)
        self._send_lock = threading.Lock()
        address = f"{_tcp(member.host)}:{port}"
        self._addresses = [a.decode() for a in member.all_gather("inbox", address.encode())]
        self._peers: dict[int, zmq.Socket] = {}
        self._thread = threading.Thread(target=self._serve, name="channel", daemon=True)
        self._thread.start()

    def open(self, routes: Sequence[Route], receiver: Receiver) -> None:
        """See `Channel.open`. A group per route, made in the order of `routes` on all ranks."""
        self._receiver = receiver
        for route in routes:
            if self.rank in (route.source, route.target) and route.name not in self._routes:
                create_group(_group(route), sorted((route.source, route.target)))
                self._routes[route.name] = route
                self._in_flight[route.name] = deque()
                if route.source == self.rank:
                    self.meters[route.name] = LinkMeter()
        self.barrier("open")

    def send(self, route: str, header: bytes, payload: Any | None) -> None:
        """Hand over to the channel's thread. `payload` must not be changed in place after."""
        start_s = time.perf_counter()
        meter = self.meters[route]
        with self._all_sent:
            self._num_unsent += 1
        with self._send_lock:
            self._outbox.append(_Parcel(self._routes[route], header, payload))
            self._waker.send(_Kind.WAKE)
            meter.num_messages += 1
            meter.num_bytes += 0 if payload is None else payload.nbytes
            meter.wait_s += time.perf_counter() - start_s

    def barrier(self, name: str) -> None:
        """See `Channel.barrier`."""
        self._member.all_gather(f"barrier/{name}")

    def close(self) -> None:
        """See `Channel.close`."""
        with self._all_sent:
            self._all_sent.wait_for(lambda: self._num_unsent == 0)
        self.barrier("close")
        with self._send_lock:
            self._waker.send(_Kind.STOP)
        self._thread.join()
        for socket in (self._waker, self._inbox, *self._peers.values()):
            socket.close(linger=0)
        self._zmq.term()

    def _serve(self) -> None:
        """The channel's thread: the one user of inbox, peers and MindSpore communication."""
        try:
            while True:
                kind, *frames = self._inbox.recv_multipart()
                if kind == _Kind.WAKE:
                    self._ship(self._outbox.popleft())
                elif kind == _Kind.ACK:
                    self._forget(frames[0].decode())
                elif kind == _Kind.DATA:
                    self._take(*frames)
                else:
                    return
        except Exception as error:  # nobody joins this thread to hear of it
            traceback.print_exc()
            self._member.abort(f"{type(error).__name__}: {error}")

    def _ship(self, parcel: _Parcel) -> None:
        route, payload = parcel.route, parcel.payload
        envelope, handle = _Envelope(), None
        if payload is not None:
            if isinstance(payload, np.ndarray):
                payload = ms.Tensor.from_numpy(payload)
            envelope = _Envelope(str(payload.dtype), tuple(payload.shape))
            assert envelope.dtype in DTYPES, f"{route.name}: payload of {envelope.dtype}"
            if payload.size > 0:
                payload = payload if payload.is_contiguous() else payload.contiguous()
                handle = mint.distributed.isend(payload, route.target, group=_group(route))
        self._in_flight[route.name].append((payload, handle))
        frames = [_Kind.DATA, route.name.encode(), _encode(envelope), parcel.header]
        self._peer(route.target).send_multipart(frames)

    def _take(self, name: bytes, envelope_bytes: bytes, header: bytes) -> None:
        posted_s = time.perf_counter()
        route, envelope = self._routes[name.decode()], _decode(envelope_bytes)
        payload = None
        if envelope.dtype is not None:
            payload = mint.empty(envelope.shape, dtype=DTYPES[envelope.dtype])
            if payload.size > 0:
                mint.distributed.irecv(payload, route.source, group=_group(route)).wait()
        done_s = time.perf_counter()
        self._peer(route.source).send_multipart([_Kind.ACK, name])
        num_bytes = 0 if payload is None else payload.nbytes
        self._receiver(Delivery(route.name, header, payload, num_bytes, posted_s, done_s))

    def _forget(self, route: str) -> None:
        self._in_flight[route].popleft()
        with self._all_sent:
            self._num_unsent -= 1
            self._all_sent.notify_all()

    def _peer(self, rank: int) -> zmq.Socket:
        if rank not in self._peers:
            self._peers[rank] = self._push_socket(self._addresses[rank])
        return self._peers[rank]

    def _push_socket(self, address: str) -> zmq.Socket:
        socket = self._zmq.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.connect(address)
        return socket


def _init_groups(member: Member) -> None:
    with member.ended_by_kernel():
        init()
    if member.num_ranks > 1 and ms.get_context("device_target") == "CPU":
        # isend and irecv look up this group whatever group they are given; on CPU nobody makes it.
        create_group("hccl_world_group", list(range(member.num_ranks)))


def _group(route: Route) -> str:
    return f"vpp_{route.name}"


def _tcp(host: str) -> str:
    return f"tcp://[{host}]" if ":" in host else f"tcp://{host}"


def _refuse(delivery: Delivery) -> None:
    raise AssertionError(f"a message on {delivery.route} before open()")
