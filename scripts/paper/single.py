"""Single requests on abstract ranks: the planner against dynamic chunks, swept and by default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from scripts.paper.shaped import BASE, K, shaped_problem, table
from vpp_ms.sim.candidates import named
from vpp_ms.sim.choice import describe
from vpp_ms.sim.planner import choose

LENGTHS = (128, 256, 512, 1024)
RANKS = (2, 4, 8, 16)
FIXED = (0.05, 0.10, 0.20)
PRESETS = ("sglang", "vllm_ascend", "atom")
TARGET = 0.131  # over default dynamic chunks, as the seed claims


@dataclass
class Gains:
    """How much shorter the planner's makespans are, in share of its own."""

    swept: list[float] = field(default_factory=list)
    default: dict[str, list[float]] = field(default_factory=lambda: {p: [] for p in PRESETS})


def singles(fixed: float, gains: Gains) -> str:
    """One table for one fixed cost; `gains` collects over tables."""
    rows = [_row(length, num_ranks, fixed, gains) for length in LENGTHS for num_ranks in RANKS]
    headings = ["request, P", "auto's plan", "over its bound", "dcpp swept"]
    return table([*headings, *(f"dcpp {preset}" for preset in PRESETS), "cpp"], rows)


def summary(gains: Gains) -> Iterator[str]:
    """What the issue's targets ask of these tables."""
    below = sum(gain < -1e-9 for gain in gains.swept)
    yield (
        f"- Against the best swept dynamic chunks: {below} of {len(gains.swept)} rows below; the "
        f"planner is {min(gains.swept):.1%} to {max(gains.swept):.1%} faster, median "
        f"{median(gains.swept):.1%}."
    )
    for preset, values in gains.default.items():
        reached = sum(value >= TARGET for value in values)
        yield (
            f"- Against preset `{preset}` at its default of 32K: {min(values):.1%} to "
            f"{max(values):.1%} faster, median {median(values):.1%}; at least 13.1 % in {reached} "
            f"of {len(values)} rows."
        )


def _row(length: int, num_ranks: int, fixed: float, gains: Gains) -> list[str]:
    tokens = length * K
    choice = choose(shaped_problem(num_ranks, tokens, fixed))
    best_s = choice.best.makespan_s
    swept = choose(
        shaped_problem(
            num_ranks,
            tokens,
            fixed,
            vpp={"placement": "plain"},
            chunking={"method": "dynamic"},
        )
    ).best
    gains.swept.append(swept.makespan_s / best_s - 1.0)
    cells = [
        f"{length}K, {num_ranks}",
        describe(choice.best),
        f"{choice.best.gap:.1%}",
        f"{gains.swept[-1]:+.1%}",
    ]
    defaults = _defaults(num_ranks, tokens, fixed)
    for preset in PRESETS:
        gain = defaults[f"dcpp {preset}"] / best_s - 1.0
        gains.default[preset].append(gain)
        cells.append(f"{gain:+.1%}")
    return [*cells, f"{defaults['cpp'] / best_s - 1.0:+.1%}"]


def _defaults(num_ranks: int, tokens: int, fixed: float) -> dict[str, float]:
    """Makespans of the named methods at 32K chunks."""
    problem = shaped_problem(num_ranks, tokens, fixed, chunking={"chunk_tokens": BASE})
    return {
        name: problem.predict(problem.sketch(config)).makespan_s
        for name, config in named(problem.config).items()
    }
