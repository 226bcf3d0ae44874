"""MindSpore's own settings, made once per process before anything is computed."""

from __future__ import annotations

import mindspore as ms


def set_up(device_target: str) -> None:
    """GRAPH_MODE on `device_target`; on CPU one runtime thread, so that ranks share no core."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device_target)
    if device_target == "CPU":
        ms.runtime.dispatch_threads_num(1)
