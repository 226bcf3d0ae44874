"""Schedule: what crosses the pipeline, the one rule of what may run, and what runs first."""

from vpp_ms.schedule.actions import Action, MicroBatch, Segment
from vpp_ms.schedule.policy import Prioritizer, prioritize
from vpp_ms.schedule.queue import RankQueue
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.schedule.walk import Walk, walk
from vpp_ms.schedule.window import Window

__all__ = [
    "Action",
    "MicroBatch",
    "Prioritizer",
    "RankQueue",
    "Schedule",
    "Segment",
    "Walk",
    "Window",
    "prioritize",
    "walk",
]
