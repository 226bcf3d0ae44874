"""Logging: one logger per module below "vpp_ms"; only entry points configure it."""

from __future__ import annotations

import logging
import sys


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def log_to_stderr(prefix: str, level: int = logging.INFO) -> None:
    """Called by entry points (a rank's process, the command line)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {prefix} %(levelname)s %(message)s"))
    root = logging.getLogger("vpp_ms")
    root.handlers[:] = [handler]
    root.setLevel(level)
