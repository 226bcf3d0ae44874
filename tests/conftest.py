"""Shared by all tests: hypothesis without deadlines and with the same examples every time."""

from __future__ import annotations

import os

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
