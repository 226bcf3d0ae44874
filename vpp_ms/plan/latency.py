"""`LatencyModel`: what one chunk costs after its prefix, and the gated fit of a profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MIN_SAMPLES = 4
MAX_RESIDUAL = 0.10  # root mean square of the relative misfit
MAX_CONDITION = 1e6  # of the scaled design matrix
MAX_UNCERTAINTY = 0.5  # standard error of `a` over `a`


@dataclass(frozen=True)
class LatencyModel:
    """Time of x tokens after a prefix of L: c + gamma L + b x + a (2 L x + x^2).

    With gamma = 0 that is c + f(L + x) - f(L) for f(l) = a l^2 + b l. Any unit of time.
    """

    a: float
    b: float
    c: float = 0.0
    gamma: float = 0.0

    def time_of(self, start: int, length: float) -> float:
        pairs = 2.0 * start * length + length * length
        return self.c + self.gamma * start + self.b * length + self.a * pairs

    def size_for(self, start: int, target: float) -> float:
        """The x with time_of(start, x) = target; 0 where the prefix alone costs more.

        x = (-(2 a L + b) + sqrt((2 a L + b)^2 + 4 a T)) / (2 a), T = target - c - gamma L,
        written without the cancellation that a small `a` would cause. Non-increasing in L.
        """
        budget = target - self.c - self.gamma * start
        slope = 2.0 * self.a * start + self.b
        if budget <= 0.0:
            return 0.0
        return 2.0 * budget / (slope + math.sqrt(slope * slope + 4.0 * self.a * budget))

    def flaw(self, base_tokens: int) -> str | None:
        """Why dynamic chunks cannot be sized by this model, or None."""
        values = (self.a, self.b, self.c, self.gamma)
        if not all(math.isfinite(value) for value in values):
            return "the latency model is not finite"
        if self.a <= 0.0:
            return f"latency does not grow with the square of the length (a = {self.a:.3g})"
        if self.b < 0.0 or self.gamma < 0.0:
            return f"latency falls with the length (b = {self.b:.3g}, gamma = {self.gamma:.3g})"
        if self.time_of(0, base_tokens) <= (1.0 + 1e-6) * self.c:
            return "a chunk of the base size costs no more than an empty one"
        return None


@dataclass(frozen=True)
class Fit:
    """Either a model or the reason why there is none."""

    model: LatencyModel | None
    reason: str | None = None
    residual: float = math.nan
    condition: float = math.nan
    uncertainty: float = math.nan


def fit_latency(
    sizes_tokens: Sequence[int],
    times: Sequence[float],
    base_tokens: int,
    starts_tokens: Sequence[int] | None = None,
) -> Fit:
    """Least squares over samples of at least half the base; never raises on bad data.

    gamma is fitted only where `starts_tokens` gives prefixes. Relative misfits are weighed, so
    that long samples do not drown the short ones.
    """
    starts = tuple(starts_tokens or (0,) * len(sizes_tokens))
    kept = [
        (start, size, time)
        for start, size, time in zip(starts, sizes_tokens, times, strict=True)
        if 2 * size >= base_tokens and math.isfinite(time) and time > 0.0
    ]
    if len({(start, size) for start, size, _ in kept}) < MIN_SAMPLES:
        return Fit(None, f"{len(kept)} usable latency samples, {MIN_SAMPLES} sizes are needed")
    start_N, size_N, time_N = (np.array(column, float) for column in zip(*kept, strict=True))
    scale = float(base_tokens)
    x_N, prefix_N = size_N / scale, start_N / scale
    columns = [2 * prefix_N * x_N + x_N * x_N, x_N, np.ones_like(x_N)]
    if prefix_N.any():
        columns.append(prefix_N)
    design_NK = np.stack(columns, axis=1) / time_N[:, None]
    condition = float(np.linalg.cond(design_NK / np.linalg.norm(design_NK, axis=0)))
    if not condition < MAX_CONDITION:
        return Fit(None, f"samples too alike (condition {condition:.1e})", condition=condition)
    solution, residual, uncertainty = _solve(design_NK)
    for term in range(1, len(solution)):
        if term != 2 and solution[term] < 0.0:  # noise around nothing: b, gamma
            design_NK[:, term] = 0.0
            solution, residual, uncertainty = _solve(design_NK)
    gamma = float(solution[3]) / scale if len(solution) == 4 else 0.0
    a, b, c = float(solution[0]) / scale**2, float(solution[1]) / scale, float(solution[2])
    model = LatencyModel(a, b, c, gamma)
    reason = model.flaw(base_tokens)
    if reason is None and residual > MAX_RESIDUAL:
        reason = f"latency samples scatter by {100 * residual:.0f} % around the fit"
    if reason is None and not uncertainty <= MAX_UNCERTAINTY:
        reason = f"growth with the length is lost in the noise (a +- {100 * uncertainty:.0f} %)"
    return Fit(model if reason is None else None, reason, residual, condition, uncertainty)


def _solve(design_NK: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Coefficients, residual and the first coefficient's relative standard error."""
    num_samples, num_terms = design_NK.shape
    target_N = np.ones(num_samples)
    solution = np.linalg.lstsq(design_NK, target_N, rcond=None)[0]
    misfit_N = design_NK @ solution - target_N
    residual = float(np.sqrt(np.mean(misfit_N**2)))
    spread = float(misfit_N @ misfit_N) / max(num_samples - num_terms, 1)
    variance = spread * float(np.linalg.pinv(design_NK.T @ design_NK)[0, 0])
    return solution, residual, math.sqrt(variance) / max(abs(float(solution[0])), 1e-300)
