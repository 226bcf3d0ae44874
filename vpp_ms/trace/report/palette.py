"""Colours and words of the pictures: work is cool and plain, idle time warm and hatched."""

from __future__ import annotations

from vpp_ms.trace.causes import ARRIVAL, DECODE, DRAIN, FILL, GROWTH, HOP, HOST, WINDOW

SWEEPS = ("#2f6fb5", "#8fbbe6", "#1c8a86", "#8ccfc4", "#5a5fb0", "#b3b5e3")
REQUESTS = (
    "#2f6fb5", "#1c8a86", "#7a5fb8", "#8fbbe6", "#5f9e3f", "#b08fd9", "#0f4c75", "#8ccfc4",
    "#a9c46c", "#5a7fa0",
)  # fmt: skip
PACKED = "#9aa7b4"  # a micro-batch of several requests
PREFIX = ("#cfe3f5", "#12325a")  # from no prefix to the longest
RUNS = ("#2f6fb5", "#d9622b", "#3c9a5f", "#8a5fc0", "#444c55", "#c7a500", "#c2477f", "#17a0b5")

CAUSES = {
    FILL: "#f0b323",
    GROWTH: "#d1335b",
    WINDOW: "#a04fb0",
    HOP: "#7d5a3c",
    DRAIN: "#ee7f33",
    DECODE: "#74808c",
    ARRIVAL: "#b9c2cb",
    HOST: "#3d4650",
}

WORDS = {
    FILL: "before the rank's first compute: no work has reached it yet",
    GROWTH: "new work is under way but takes longer upstream than what the rank had to do "
    "meanwhile: stages of unequal micro-batches meet",
    WINDOW: "new work would be here, had rank 0 been allowed to inject it when it idled",
    HOP: "the message that the next compute needs is on the link",
    DRAIN: "no new work is left for the rank: only later stages of micro-batches under way, or "
    "nothing",
    DECODE: "all prompts are prefilled; each sampled token needs the one before it",
    ARRIVAL: "new work would be here, had its request come earlier",
    HOST: "work lay ready: hand-over, sampling, feeding or waking up between two computes",
}
