"""Runs that show what a synthetic model of eight layers costs on two ranks.

Split tails give chunks of four sizes. Stages of one, three and four layers with one or two
neighbours elsewhere tell what a layer costs from what a stage and what a message cost.
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
    f"calibration, {name}": {"vpp": vpp, "chunking": {"method": "tail", "chunk_tokens": tokens}}
    for name, vpp, tokens in (
        ("plain 512", {"method": "cpp"}, 512),
        ("loop4 512", {"method": "vpp", "placement": "loop", "virtual_stages": 4}, 512),
        ("v2 1024", {"method": "vpp", "layer_split": [1, 3, 1, 3]}, 1024),
    )
}


def calibrate_from(output_dir: Path, model_dir: Path) -> Calibration:
    """From all rounds of a comparison that had `CALIBRATING` among its variants."""
    files = [
        file for name in CALIBRATING for file in sorted((output_dir / name / ROUNDS).glob("*.json"))
    ]
    traces = {str(file): read_trace(file) for file in files}
    return calibrate(traces, load_spec(model_dir), Footprint.of("float32"))
