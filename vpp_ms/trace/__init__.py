"""Trace: what every rank did and when, the figures made of it, and the file that shows it."""

from vpp_ms.trace.events import Event, Trace
from vpp_ms.trace.io import read_trace, write_trace
from vpp_ms.trace.metrics import Metrics, measure
from vpp_ms.trace.perfetto import to_perfetto
from vpp_ms.trace.simulated import trace_of_walk

__all__ = [
    "Event",
    "Metrics",
    "Trace",
    "measure",
    "read_trace",
    "to_perfetto",
    "trace_of_walk",
    "write_trace",
]
