"""`Session`: one rank for the life of its process. Holds weights and channel, runs plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vpp_ms.engine import profile
from vpp_ms.engine.engine import Engine
from vpp_ms.engine.job import Job
from vpp_ms.engine.measure import RankReport, Usage
from vpp_ms.engine.progress import Progress
from vpp_ms.engine.request import Request
from vpp_ms.engine.sampler import Sampler
from vpp_ms.engine.stages import stage_maker
from vpp_ms.errors import PlanError
from vpp_ms.executor.compute import StageCompute
from vpp_ms.executor.rank import Executor
from vpp_ms.executor.recorder import Recorder
from vpp_ms.log import get_logger
from vpp_ms.plan.latency import Fit, fit_latency
from vpp_ms.plan.plan import Plan, StageSpec
from vpp_ms.schedule.actions import MicroBatch
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.defaults import costs_of
from vpp_ms.sim.simulate import simulate, walk_prefill
from vpp_ms.sim.workload import Ask
from vpp_ms.trace.events import EMULATED, MEASURED, Trace
from vpp_ms.transport.channel import Channel
from vpp_ms.transport.rendezvous import Member

log = get_logger(__name__)


@dataclass(frozen=True)
class Run:
    """Rank 0's account of one run; `schedule` is what was planned for the prompts' prefill.

    `injected` are all micro-batches in order of their index; `prefill` those of prompts.
    """

    plan: Plan
    schedule: Schedule
    requests: list[Request]
    prefill: list[MicroBatch]
    injected: list[MicroBatch]
    reports: list[RankReport]
    origin: str
    prediction: Trace | None


class Session:
    """Collective: every rank calls the same methods in the same order with the same job."""

    def __init__(self, job: Job, member: Member, channel: Channel) -> None:
        self._job, self._member, self._channel = job, member, channel
        self._rank = channel.rank
        self._stages: dict[StageSpec, StageCompute] = {}
        self._make_stage = stage_maker(job)
        self._recorder = Recorder(self._rank)

    def plan(self, variant: str) -> Plan:
        """The variant's plan, the same on all ranks, with its stages loaded and compiled.

        Raises PlanError when the ranks do not agree on it.
        """
        plan = self._job.make_plan(variant)
        if plan.needs_latency:
            self._load(plan)
            plan = self._job.make_plan(variant, self._profile(plan, variant))
        hashes = self._member.all_gather(f"plan/{variant}", plan.hash.encode())
        if len(set(hashes)) > 1:
            raise PlanError("plan", f"ranks disagree: {[h.decode() for h in hashes]}")
        if self._rank == 0:
            for note in plan.notes:
                log.warning("%s: %s", variant, note)
        self._load(plan)
        return plan

    def run(self, plan: Plan, name: str) -> Run | None:
        """Serve the job's prompts once under `plan`; rank 0 gets the account of it."""
        stages = {s.index: self._stages[s] for s in plan.stages if s.rank == self._rank}
        executor = Executor(plan.placement, stages, self._channel, self._recorder)
        progress = Progress(self._rank, self._recorder, self._member.report)
        self._member.report({"kind": "phase", "rank": self._rank, "phase": "prefill"})
        self._channel.barrier(f"start/{name}")
        self._recorder.start()
        usage = Usage.now(self._channel.meters)
        engine = None
        if self._rank == 0:
            costs = costs_of(self._job.config, self._job.spec)
            engine = self._make_engine(plan, costs, executor, progress)
            requests = engine.run(self._job.prompts)
        else:
            while not executor.drained:
                executor.step(timeout_s=1.0)
                progress.tick()
        report = usage.report(self._rank, self._channel.meters, self._recorder.events)
        gathered = self._member.all_gather(f"report/{name}", report.encode())
        if engine is None:
            return None
        walked = walk_prefill(plan, costs, self._job.prompt_lengths)
        prediction = self._predict(plan, costs, [r for r in requests if r.error is None])
        reports = [RankReport.decode(data) for data in gathered]
        schedule = Schedule.of_walk(walked)
        origin = EMULATED if self._job.config.is_emulated else MEASURED
        return Run(
            plan, schedule, requests, engine.prefill, engine.injected, reports, origin, prediction
        )

    def _predict(self, plan: Plan, costs: Costs, served: Sequence[Request]) -> Trace | None:
        """What the simulator says of the requests that were served, on this run's clock."""
        if not served:
            return None
        asks = [Ask(r.prompt_tokens, max(len(r.output_token_ids), 1)) for r in served]
        predicted = simulate(plan, costs, asks)
        config = self._job.config
        return predicted.scaled(config.emulation.time_scale) if config.is_emulated else predicted

    def _make_engine(
        self, plan: Plan, costs: Costs, executor: Executor, progress: Progress
    ) -> Engine:
        config, spec = self._job.config, self._job.spec
        eos = frozenset() if config.input.ignore_eos else frozenset(spec.eos_token_ids)
        return Engine(
            plan,
            costs.model.for_stages(plan.stages),
            executor,
            self._recorder,
            Sampler.of(config.input, config.seed),
            eos,
            progress,
        )

    def _load(self, plan: Plan) -> None:
        """Build the stages that this rank lacks, and compile them."""
        mine = [s for s in plan.stages if s.rank == self._rank and s not in self._stages]
        if not mine:
            return
        self._member.report({"kind": "phase", "rank": self._rank, "phase": "load"})
        for spec in mine:
            self._stages[spec] = self._make_stage(plan, spec)
        self._member.report({"kind": "phase", "rank": self._rank, "phase": "compile"})
        for spec in mine:
            self._stages[spec].warm_up()
        if not self._job.config.is_emulated:  # memory that a first chunk would have to wait for
            tokens = min(plan.chunking.chunk_tokens, plan.num_blocks * plan.block_size)
            chunk = profile.Sample(0, tokens)
            probe = profile.probe_of(chunk, plan.block_size, plan.placement.num_stages)
            profile.time_once([self._stages[spec] for spec in mine], probe)

    def _profile(self, plan: Plan, variant: str) -> Fit:
        """Latency of whole chunks, fitted to the slowest rank's times; the same on all ranks."""
        chunk_tokens = plan.chunking.chunk_tokens
        chunks = profile.samples(chunk_tokens, plan.num_blocks * plan.block_size)
        mine = [self._stages[s] for s in plan.stages if s.rank == self._rank]
        try:
            times_ms = profile.time_stages(mine, chunks, plan.block_size, plan.placement.num_stages)
        except Exception as error:
            log.warning("rank %d could not be profiled (%s)", self._rank, error)
            times_ms = None
        gathered = self._member.all_gather(f"profile/{variant}", profile.encode_times(times_ms))
        dearest_ms = profile.dearest(gathered)
        if dearest_ms is None:
            return Fit(None, "a rank could not be profiled")
        starts, lengths = zip(*chunks, strict=True)
        return fit_latency(lengths, dearest_ms, chunk_tokens, starts)
