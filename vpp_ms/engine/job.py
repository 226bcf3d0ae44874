"""A job: what every rank is told, made once by whoever starts it, and its life in `msrun`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.launch import launch
from vpp_ms.engine.prompts import Prompt, read_prompts
from vpp_ms.engine.text import TextCodec
from vpp_ms.errors import ConfigError, RankError
from vpp_ms.model.checkpoint import CheckpointReader
from vpp_ms.model.registry import load_spec
from vpp_ms.plan.latency import Fit
from vpp_ms.plan.plan import Plan, make_plan
from vpp_ms.sim.defaults import known_model
from vpp_ms.sim.planner import resolve_auto

OnEvent = Callable[[dict], None]


@dataclass(frozen=True)
class Job:
    """The prompts are served once per round under every variant's configuration.

    A plain run has one variant and one round. Variants differ in `vpp` and `chunking` only: they
    share ranks, weights and prompts.
    """

    spec: ModelSpec
    prompts: tuple[Prompt, ...]
    variants: dict[str, RunConfig]
    rounds: int = 1

    @property
    def config(self) -> RunConfig:
        """What all variants share: directories, prompts, launch."""
        return next(iter(self.variants.values()))

    @property
    def prompt_lengths(self) -> tuple[int, ...]:
        return tuple(len(prompt.token_ids) for prompt in self.prompts)

    def make_plan(self, variant: str, latency: Fit | None = None) -> Plan:
        """The variant's plan for these prompts, the same on every rank. Raises PlanError."""
        config = self.variants[variant]
        return make_plan(
            config,
            self.spec,
            self.prompt_lengths,
            latency,
            tuple(prompt.max_new_tokens for prompt in self.prompts),
            known_model(config, self.spec),
        )

    @property
    def is_comparison(self) -> bool:
        return len(self.variants) > 1 or self.rounds > 1


_jobs: TypeAdapter[Job] = TypeAdapter(Job)


def load_job(path: str | Path) -> Job:
    return _jobs.validate_json(Path(path).read_bytes())


def method_variants(config: RunConfig, methods: Sequence[str]) -> dict[str, RunConfig]:
    """One variant per method. What a method decides is then its choice, not the file's."""
    variants = {}
    for method in methods:
        vpp = config.vpp.model_dump() | {
            "method": method,
            "placement": None,
            "virtual_stages": None,
        }
        chunking = config.chunking.model_dump() | {"method": None}
        variants[method] = RunConfig.model_validate(
            config.model_dump() | {"vpp": vpp, "chunking": chunking}
        )
    return variants


def prepare_job(variants: Mapping[str, RunConfig], rounds: int = 1) -> Job:
    """Read the model's configuration and the prompts; whatever a user can get wrong shows here.

    Raises ConfigError, CheckpointError, RequestError or PlanError, before any rank starts.
    """
    config = next(iter(variants.values()))
    spec = load_spec(config.pretrained_model_dir)
    if not config.is_emulated:
        reader = CheckpointReader(config.pretrained_model_dir, spec)
        reader.check(range(spec.num_layers), with_embedding=True, with_head=True)
    prompts = tuple(read_prompts(config, spec))
    lengths = tuple(len(prompt.token_ids) for prompt in prompts)
    settled = {name: resolve_auto(variant, spec, lengths) for name, variant in variants.items()}
    job = Job(spec, prompts, settled, rounds)
    for name in settled:
        job.make_plan(name)
    return job


def run_job(config: RunConfig, on_event: OnEvent) -> dict:
    """One run on `pipeline_stage` ranks; returns what result.json holds."""
    return _launch(prepare_job({config.vpp.method: config}), on_event)


def compare_job(variants: Mapping[str, RunConfig], rounds: int, on_event: OnEvent) -> dict:
    """The variants in interleaved rounds inside one `msrun`; returns what compare.json holds."""
    if rounds < 1:
        raise ConfigError("--rounds", rounds, allowed=">= 1")
    return _launch(prepare_job(variants, rounds), on_event)


def _launch(job: Job, on_event: OnEvent) -> dict:
    config = job.config
    config.output_dir.mkdir(parents=True, exist_ok=True)
    log_dir = config.launch.log_dir or config.output_dir / "log"
    log_dir.mkdir(parents=True, exist_ok=True)
    job_file = log_dir / "job.json"
    job_file.write_bytes(_jobs.dump_json(job))
    watcher = _Watcher(job, on_event)
    launch(
        ["-m", "vpp_ms.engine.worker", "--job", str(job_file)],
        num_ranks=config.parallel_config.pipeline_stage,
        log_dir=log_dir,
        master_addr=config.launch.master_addr,
        master_port=config.launch.master_port,
        pin_cores=config.launch.pin_cores and config.context.device_target != "Ascend",
        timeout_s=config.launch.timeout_s,
        on_event=watcher,
    )
    if watcher.result is None:
        raise RankError("rank 0", "ended without a result", hint=f"see {log_dir}/worker_0.log")
    return watcher.result


class _Watcher:
    """Keeps the result, turns sampled tokens into growing text, passes on all other events."""

    def __init__(self, job: Job, on_event: OnEvent) -> None:
        self.result: dict | None = None
        self._on_event = on_event
        self._codec = TextCodec.of(job.config.pretrained_model_dir)
        self._answers: dict[str, list[int]] = {}
        self._told: dict[str, int] = {}

    def __call__(self, event: dict) -> None:
        if event["kind"] == "result":
            self.result = event["result"]
        elif event["kind"] != "token":
            self._on_event(event)
        elif self._codec is not None:
            self._grow(event["id"], event["token"])

    def _grow(self, request: str, token: int) -> None:
        """The text of one token is only known in the company of those before it."""
        answer = self._answers.setdefault(request, [])
        answer.append(token)
        assert self._codec is not None
        text, told = self._codec.decode(answer), self._told.get(request, 0)
        if len(text) > told and not text.endswith("\ufffd"):
            self._on_event({"kind": "token", "id": request, "text": text[told:]})
            self._told[request] = len(text)
