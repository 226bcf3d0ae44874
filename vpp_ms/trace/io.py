"""Traces on disk: the Perfetto file is the only form, and it reads back without loss."""

from __future__ import annotations

import json
from pathlib import Path

from vpp_ms.errors import VppError
from vpp_ms.trace.events import Trace
from vpp_ms.trace.perfetto import from_perfetto, to_perfetto


def write_trace(trace: Trace, path: str | Path) -> None:
    Path(path).write_text(json.dumps(to_perfetto(trace), separators=(",", ":")) + "\n")


def read_trace(path: str | Path) -> Trace:
    """Raises VppError for a file that is missing or is not a trace of ours."""
    try:
        return from_perfetto(json.loads(Path(path).read_text()))
    except OSError as error:
        raise VppError(str(path), error.strerror or "cannot be read") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VppError(
            str(path), "not a trace of this program", allowed="a trace.json that a run wrote"
        ) from error
