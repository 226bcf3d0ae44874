"""Op sets: how a layer is computed on a device. `cpu` is run and tested; `ascend` is written to
the API documents and not yet run on hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vpp_ms.config.model_spec import ModelSpec

if TYPE_CHECKING:
    from vpp_ms.model.ops.base import OpSet

__all__ = ["op_set"]


def op_set(spec: ModelSpec, device_target: str) -> OpSet:
    """The op set of a device for one model."""
    if device_target == "Ascend":
        from vpp_ms.model.ops.ascend import AscendOps

        return AscendOps(spec)
    from vpp_ms.model.ops.cpu import CpuOps

    return CpuOps(spec)
