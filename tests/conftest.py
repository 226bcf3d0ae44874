"""Shared by all tests: hypothesis without deadlines and with the same examples every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# One thread per process unless a test says otherwise: the suite shares two cores with its ranks.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def cpu() -> None:
    """MindSpore set up in this process, as a rank does it: once, before anything is computed."""
    from vpp_ms.model.context import set_up

    set_up("CPU")
