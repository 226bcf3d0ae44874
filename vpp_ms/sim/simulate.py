"""`simulate`: requests through a plan in virtual time. Feeder, queues and window are the ranks'.

The feeder is told the expected costs, as rank 0 is; what an action then takes may scatter around
them. So a simulation shows what an order is worth when the times are not what they should be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from vpp_ms.errors import ConfigError, RequestError
from vpp_ms.plan.cost import StageCosts
from vpp_ms.plan.stages import StageSpec
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.feeder import Feeder, Incoming, Recipe
from vpp_ms.schedule.walk import HopOf, Walk, walk_source
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.events import SIMULATED, Trace
from vpp_ms.trace.meta import Described, run_meta
from vpp_ms.trace.simulated import trace_of_walk

TimesOf = Callable[[MicroBatch], tuple[float, ...]]


class Simulatable(Recipe, Protocol):
    """What a simulation needs of a plan. A `Plan` is one."""

    @property
    def stages(self) -> tuple[StageSpec, ...]: ...
    @property
    def num_blocks(self) -> int: ...


class Named(Simulatable, Described, Protocol):
    """A plan with the names that its trace repeats."""


@dataclass(frozen=True)
class Served:
    """When a request's first token was there, and its last; from the run's start."""

    request: int
    prompt_tokens: int
    arrival_s: float
    first_token_s: float
    done_s: float


@dataclass(frozen=True)
class Run:
    walk: Walk
    micro_batches: tuple[MicroBatch, ...]
    served: tuple[Served, ...]


def simulate(
    plan: Named,
    costs: Costs,
    asks: Sequence[Ask],
    *,
    jitter: float = 0.0,
    seed: int = 0,
    believed: Costs | None = None,
) -> Trace:
    """The trace of a run that did not happen; its origin says so.

    `jitter` is the standard deviation of the logarithm of each action's time around its
    expectation; the same seed gives the same trace. `believed` are the costs that rank 0 orders
    by, where they are not the true ones. Raises RequestError or ConfigError.
    """
    found = run(plan, costs, asks, jitter=jitter, seed=seed, believed=believed)
    names = [str(request) for request in range(len(asks))]
    meta = run_meta(plan, found.micro_batches, names, [ask.arrival_s for ask in asks])
    meta |= {"costs": costs.origin, "jitter": jitter, "seed": seed}
    meta["served"] = [vars(one) for one in found.served]
    return trace_of_walk(found.walk, SIMULATED, meta)


def run(
    plan: Simulatable,
    costs: Costs,
    asks: Sequence[Ask],
    *,
    jitter: float = 0.0,
    seed: int = 0,
    believed: Costs | None = None,
) -> Run:
    """As `simulate`, before it becomes a trace."""
    if not 0.0 <= jitter < 10.0:
        raise ConfigError("jitter", jitter, allowed="0 to 10")
    times = _Times(costs.model.for_stages(plan.stages), jitter, seed)
    last_stage = plan.placement.num_stages - 1
    hop_of = None if costs.link.is_free else partial(costs.link.hop, last_stage=last_stage)
    return serve(plan, believed or costs, asks, times, hop_of)


def serve(
    plan: Simulatable,
    believed: Costs,
    asks: Sequence[Ask],
    times_of: TimesOf,
    hop_of: HopOf | None,
) -> Run:
    """The requests in virtual time, ordered by `believed` costs, whatever things really take.

    `times_of` a micro-batch: its seconds on each stage, [S].
    """
    if not asks:
        raise ConfigError("workload", "no requests", allowed="at least one prompt")
    source = _Source(plan, believed.model.for_stages(plan.stages), times_of, asks)
    arrivals = [(ask.arrival_s, request) for request, ask in enumerate(asks)]
    walked = walk_source(plan.placement, source, source.time_s, arrivals, hop_of=hop_of)
    return Run(walked, tuple(source.injected), source.served())


def walk_prefill(plan: Simulatable, costs: Costs, prompt_lengths: Sequence[int]) -> Walk:
    """The prefill of these prompts, all known from the start.

    A prompt that the KV pool can never hold is left out, as the engine refuses it.
    """
    room = plan.num_blocks * plan.block_size
    return run(plan, costs, [Ask(length) for length in prompt_lengths if length <= room]).walk


class _Pool:
    """Counts KV blocks; a simulated block has no number."""

    def __init__(self, plan: Simulatable) -> None:
        self._block_size, self._free = plan.block_size, plan.num_blocks
        self._num_blocks = plan.num_blocks
        self._held: dict[int, int] = {}

    def check(self, request: int, num_tokens: int) -> None:
        needed = -(-num_tokens // self._block_size)
        if needed > self._num_blocks:
            raise RequestError(
                f"request {request}",
                f"{num_tokens} tokens of KV cache",
                allowed=f"<= {self._num_blocks} blocks of {self._block_size}",
                hint="a larger KV pool or a shorter prompt",
            )

    def allocate(self, request: int, num_tokens: int) -> tuple[int, ...] | None:
        missing = -(-num_tokens // self._block_size) - self._held.get(request, 0)
        if missing > self._free:
            return None
        self._free -= missing
        self._held[request] = self._held.get(request, 0) + missing
        return ()

    def free(self, request: int) -> None:
        self._free += self._held.pop(request)


class _Times:
    """What each action really takes, drawn per micro-batch: an order does not change the draw."""

    def __init__(self, costs: StageCosts, jitter: float, seed: int) -> None:
        self._costs, self._jitter, self._seed = costs, jitter, seed

    def __call__(self, micro_batch: MicroBatch) -> tuple[float, ...]:
        """Seconds on each stage, [S]."""
        expected_S = self._costs(micro_batch.segments)
        if self._jitter == 0.0:
            return expected_S
        noise_S = np.random.default_rng((self._seed, micro_batch.index)).normal(
            -(self._jitter**2) / 2, self._jitter, len(expected_S)
        )
        return tuple((np.array(expected_S) * np.exp(noise_S)).tolist())


class _Source:
    """What rank 0's engine does besides computing, on the same feeder."""

    def __init__(
        self, plan: Simulatable, expected: StageCosts, times_of: TimesOf, asks: Sequence[Ask]
    ) -> None:
        self._times_of, self._asks = times_of, asks
        self._pool = _Pool(plan)
        self._feeder = Feeder(plan, expected, self._pool)
        self._times: dict[int, tuple[float, ...]] = {}
        self._first_s: dict[int, float] = {}
        self._done_s: dict[int, float] = {}
        self._num_sampled = [0] * len(asks)
        self.injected: list[MicroBatch] = []
        for request, ask in enumerate(asks):
            self._pool.check(request, ask.total_tokens)

    def arrive(self, request: int, time_s: float) -> None:
        ask = self._asks[request]
        incoming = Incoming(request, ask.prompt_tokens, ask.total_tokens, ask.cached_tokens)
        self._feeder.arrive(incoming)

    def next(self) -> MicroBatch | None:
        self._feeder.admit()
        micro_batch = self._feeder.next()
        if micro_batch is not None:
            self.injected.append(micro_batch)
            self._times[micro_batch.index] = self._times_of(micro_batch)
        return micro_batch

    def leave(self, micro_batch: MicroBatch, time_s: float) -> None:
        self._feeder.leave(micro_batch)
        for segment in micro_batch.segments:
            if segment.sample:
                self._sample(segment.request, time_s)

    def time_s(self, stage: int, micro_batch: MicroBatch) -> float:
        return self._times[micro_batch.index][stage]

    def served(self) -> tuple[Served, ...]:
        return tuple(
            Served(
                request,
                ask.prompt_tokens,
                ask.arrival_s,
                self._first_s[request],
                self._done_s[request],
            )
            for request, ask in enumerate(self._asks)
        )

    def _sample(self, request: int, time_s: float) -> None:
        ask = self._asks[request]
        self._first_s.setdefault(request, time_s)
        self._num_sampled[request] += 1
        if self._num_sampled[request] < ask.new_tokens:
            position = ask.prompt_tokens + self._num_sampled[request] - 1
            self._feeder.decode(request, position)
        else:
            self._done_s[request] = time_s
            self._feeder.finish(request)
            self._pool.free(request)
