"""`TensorFile`: one safetensors file, its header checked at opening, its tensors read singly.

The safetensors library proves the header; the bytes are read here, because numpy has no
bfloat16 and the library's numpy front end refuses it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from vpp_ms.errors import CheckpointError

# stored type -> numpy type of the raw bytes; bfloat16 is the upper half of a float32
READABLE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class TensorInfo(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int  # from the start of the file


class TensorFile:
    """Names, types and shapes of one file, and its tensors as float32.

    Raises CheckpointError when the file is missing, cut short or not safetensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = _read_header(path)

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Fill the contiguous float32 array `out`, of the tensor's shape."""
        info = self.tensors[name]
        raw = np.fromfile(self.path, READABLE[info.dtype], count=out.size, offset=info.offset_bytes)
        if raw.size != out.size:
            raise CheckpointError(str(self.path), f"cut short inside {name}")
        raw = raw.reshape(out.shape)
        if info.dtype == "BF16":
            np.left_shift(raw, 16, out=out.view(np.uint32), dtype=np.uint32)
        else:
            out[...] = raw


def _read_header(path: Path) -> dict[str, TensorInfo]:
    if not path.is_file():
        raise CheckpointError(str(path), "no such file")
    try:
        with safe_open(path, framework="numpy") as checked:
            names = set(checked.keys())
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_bytes))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            str(path),
            f"not a whole safetensors file ({error})",
            hint="downloading it again; a Git LFS pointer is not the file",
        ) from None
    return {
        name: TensorInfo(
            entry["dtype"],
            tuple(entry["shape"]),
            8 + header_bytes + entry["data_offsets"][0],
        )
        for name, entry in header.items()
        if name in names
    }
