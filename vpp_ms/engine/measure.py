"""What a rank measured in one run, and the whole run put together on rank 0."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

import msgspec

from vpp_ms.transport.channel import LinkMeter


@dataclass(frozen=True)
class RankReport:
    """One rank's own figures of one run; events as in `vpp_ms.trace.events.Event`."""

    rank: int
    events: list[tuple[str, int, int, int, float, float, int, int]]
    wait_send_s: float
    bytes_sent: int
    messages_sent: int
    cpu_s: float
    peak_rss_bytes: int

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> RankReport:
        return msgspec.msgpack.decode(data, type=RankReport)


@dataclass
class Usage:
    """Counters that only grow, read before and after a run."""

    wait_send_s: float
    bytes_sent: int
    messages_sent: int
    cpu_s: float

    @staticmethod
    def now(meters: dict[str, LinkMeter]) -> Usage:
        values = meters.values()
        return Usage(
            wait_send_s=sum(meter.wait_s for meter in values),
            bytes_sent=sum(meter.num_bytes for meter in values),
            messages_sent=sum(meter.num_messages for meter in values),
            cpu_s=time.process_time(),
        )

    def report(self, rank: int, meters: dict[str, LinkMeter], events: list) -> RankReport:
        """The figures since this reading."""
        end = Usage.now(meters)
        return RankReport(
            rank=rank,
            events=events,
            wait_send_s=end.wait_send_s - self.wait_send_s,
            bytes_sent=end.bytes_sent - self.bytes_sent,
            messages_sent=end.messages_sent - self.messages_sent,
            cpu_s=end.cpu_s - self.cpu_s,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
