"""Runs that show what a synthetic model of eight layers costs on two ranks.

Split tails give chunks of four sizes; stages of one and three layers tell a layer's cost from a
stage's and a message's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vpp_ms.engine.results import ROUNDS
from vpp_ms.model.registry import load_spec
from vpp_ms.plan.memory import Footprint
from vpp_ms.sim.calibrate import Calibration, calibrate
from vpp_ms.trace import read_trace

LAYERS = 8
CALIBRATING: dict[str, dict[str, Any]] = {
    f"calibration, {chunk_tokens}": {
        "vpp": {"method": "vpp", "layer_split": [1, 3, 1, 3]},
        "chunking": {"method": "tail", "chunk_tokens": chunk_tokens},
    }
    for chunk_tokens in (512, 1024)
}


def calibrate_from(output_dir: Path, model_dir: Path) -> Calibration:
    """From all rounds of a comparison that had `CALIBRATING` among its variants."""
    files = [
        file for name in CALIBRATING for file in sorted((output_dir / name / ROUNDS).glob("*.json"))
    ]
    traces = {str(file): read_trace(file) for file in files}
    return calibrate(traces, load_spec(model_dir), Footprint.of("float32"))
