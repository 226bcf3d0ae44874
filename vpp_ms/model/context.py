"""MindSpore's own settings, made once per process before anything is computed."""

from __future__ import annotations

import mindspore as ms


def set_up(device_target: str) -> None:
    """GRAPH_MODE on `device_target`; on CPU one thread, for the runtime and for its kernels.

    A rank has one core: kernels that are split among threads of one core only wait for each other.
    """
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device_target)
    if device_target == "CPU":
        ms.runtime.dispatch_threads_num(1)
        ms.device_context.cpu.op_tuning.threads_num(1)
