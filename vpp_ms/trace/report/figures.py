"""Every number that a picture shows, from one trace; the page and the PNG files share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from vpp_ms.trace.cargo import Cargo
from vpp_ms.trace.causes import Idle, by_cause, idle_times
from vpp_ms.trace.events import COMPUTE, Trace
from vpp_ms.trace.metrics import Metrics, measure
from vpp_ms.trace.report.runs import ReportedRun

NEGLIGIBLE = 5e-4  # a share of all ranks' time that would be printed as 0.0 %


class Chunk(NamedTuple):
    """One prefill micro-batch: its longest segment, and its time on one rank on average."""

    micro_batch: int
    request: int
    prefix_tokens: int
    tokens: int
    time_s: float


class Pair(NamedTuple):
    """One compute, as predicted and as it was."""

    stage: int
    micro_batch: int
    predicted_s: float
    actual_s: float


@dataclass(frozen=True)
class Figures:
    """`prompt_tokens` and `tokens_per_s` are None where the trace does not say what it carried.

    `causes_s` are seconds summed over ranks; `stages` counts virtual stages of the whole model.
    """

    trace: Trace
    cargo: Cargo
    metrics: Metrics
    start_s: float
    stages: int
    idles: tuple[Idle, ...]
    causes_s: Mapping[str, float]
    chunks: tuple[Chunk, ...]
    prompt_tokens: int | None
    tokens_per_s: float | None

    @classmethod
    def of(cls, trace: Trace, result: Mapping[str, Any] | None = None) -> Figures:
        """`result` (result.json) knows better when the last prompt was done."""
        cargo, metrics, computes = Cargo.of(trace), measure(trace), trace.of(COMPUTE)
        idles = idle_times(trace)
        start_s = min((e.start_s for e in computes), default=0.0)
        tokens, tokens_per_s = _rate(trace, cargo, start_s)
        if result and "tokens_per_s" in result:
            tokens, tokens_per_s = result.get("prompt_tokens"), result["tokens_per_s"]
        return cls(
            trace=trace,
            cargo=cargo,
            metrics=metrics,
            start_s=start_s,
            stages=max((e.stage for e in computes), default=-1) + 1,
            idles=idles,
            causes_s=by_cause(idles),
            chunks=tuple(_chunks(trace, cargo)),
            prompt_tokens=tokens,
            tokens_per_s=tokens_per_s,
        )

    @property
    def unit(self) -> str:
        """ "s", or what a trace in other units calls them."""
        return str(self.trace.meta.get("time_unit", "s"))

    @property
    def layout(self) -> str:
        """Such as "v, 4 ranks x 2 stages"."""
        ranks = self.trace.num_ranks
        kind = self.trace.meta.get("placement")
        words = f"{ranks} {_plural('rank', ranks)} x {_count(self.stages / ranks, 'stage')}"
        return f"{kind}, {words}" if kind else words

    @property
    def assumptions(self) -> str:
        """What a simulated or emulated run's times come from, in the words of whoever made them."""
        costs, jitter = self.trace.meta.get("costs"), self.trace.meta.get("jitter")
        words = [f"costs: {costs}"] if costs else []
        return ", ".join([*words, f"jitter {jitter}"] if jitter else words)

    @property
    def shares(self) -> dict[str, float]:
        """Of all ranks' time, by cause, greatest first; without rounding errors of sums."""
        whole_s = self.trace.num_ranks * self.metrics.makespan_s
        shares = {cause: time_s / whole_s for cause, time_s in self.causes_s.items()}
        ordered = sorted(shares, key=lambda cause: -shares[cause])
        return {cause: shares[cause] for cause in ordered if shares[cause] > NEGLIGIBLE}

    def verdict(self) -> str:
        """How much of the ranks' time was idle, and what for: "idle 24.9 %: drain 12.5 %, ..."."""
        named = [f"{name} {_percent(share)}" for name, share in self.shares.items()]
        if not named:
            return "never idle"
        return f"idle {_percent(self.metrics.bubble_ratio)}: " + ", ".join(named)


def pairs(predicted: Trace, actual: Trace) -> tuple[Pair, ...]:
    """Computes that both have, in the order of the actual trace."""
    expected = {(e.stage, e.micro_batch): e.duration_s for e in predicted.of(COMPUTE)}
    return tuple(
        Pair(e.stage, e.micro_batch, expected[e.stage, e.micro_batch], e.duration_s)
        for e in actual.of(COMPUTE)
        if (e.stage, e.micro_batch) in expected
    )


def median_error(found: Iterable[Pair]) -> float | None:
    """Median of |predicted - actual| / actual; None without pairs."""
    errors = [abs(p.predicted_s - p.actual_s) / p.actual_s for p in found if p.actual_s > 0]
    return median(errors) if errors else None


def figures_of(run: ReportedRun) -> Figures:
    return Figures.of(run.trace, run.result)


def _chunks(trace: Trace, cargo: Cargo) -> Iterable[Chunk]:
    time_s: dict[int, float] = {}
    for event in trace.of(COMPUTE):
        time_s[event.micro_batch] = time_s.get(event.micro_batch, 0.0) + event.duration_s
    for index, segments in enumerate(cargo.segments):
        if not segments or index in cargo.decode or index not in time_s:
            continue
        longest = max(segments, key=lambda s: s.length)
        tokens = sum(s.length for s in segments)
        share_s = time_s[index] / trace.num_ranks
        yield Chunk(index, longest.request, longest.start, tokens, share_s)


def _rate(trace: Trace, cargo: Cargo, start_s: float) -> tuple[int | None, float | None]:
    """Prompt tokens, and these per second until the last prefill left the last stage."""
    if not cargo.segments:
        return None, None
    prefill = [i for i, row in enumerate(cargo.segments) if row and i not in cargo.decode]
    tokens = sum(s.length for index in prefill for s in cargo.segments[index])
    known = set(prefill)
    ends_s = [e.end_s for e in trace.of(COMPUTE) if e.micro_batch in known]
    elapsed_s = max(ends_s, default=start_s) - start_s
    return tokens, tokens / elapsed_s if elapsed_s > 0 else None


def _count(number: float, word: str) -> str:
    return f"{number:g} {_plural(word, number)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _plural(word: str, number: float) -> str:
    return word if number == 1 else word + "s"
