"""`Scenario`: a YAML file that describes a run nobody can afford: model card, device, workload.

Keys of `parallel_config`, `vpp`, `chunking` and `kv` mean what they mean in a run's file;
`parallel_config.model_parallel` devices share each rank's work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vpp_ms.config.model_spec import MLASpec, ModelSpec, MoESpec
from vpp_ms.config.schema import (
    ChunkingConfig,
    KvConfig,
    ParallelConfig,
    PositiveInt,
    RunConfig,
    Section,
    VppConfig,
)
from vpp_ms.errors import ConfigError
from vpp_ms.plan.memory import ITEM_BYTES, Footprint
from vpp_ms.sim.costs import derive
from vpp_ms.sim.device import load_card
from vpp_ms.sim.forms import read_form
from vpp_ms.sim.problem import Problem
from vpp_ms.sim.workload import Ask, make_workload


class MoECard(Section):
    num_experts: PositiveInt
    top_k: PositiveInt
    intermediate_size: PositiveInt
    num_shared: Annotated[int, Field(ge=0)] = 0


class MLACard(Section):
    query_rank: PositiveInt
    kv_rank: PositiveInt
    nope_dim: PositiveInt
    rope_dim: PositiveInt
    value_dim: PositiveInt


class ModelCard(Section):
    """A model's dimensions; the first `num_dense_layers` layers have no experts."""

    about: str
    family: str
    num_layers: PositiveInt
    hidden_size: PositiveInt
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    vocab_size: PositiveInt
    intermediate_size: PositiveInt
    max_position: PositiveInt
    moe: MoECard | None = None
    mla: MLACard | None = None
    num_dense_layers: Annotated[int, Field(ge=0)] = 0
    qk_norm: bool = False
    attention_bias: bool = False
    dtype: Literal["float32", "float16", "bfloat16"] = "bfloat16"
    weight_bytes: Literal[1, 2, 4] = 2

    def spec(self) -> ModelSpec:
        same = {"family", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim"}
        same |= {"vocab_size", "intermediate_size", "max_position", "dtype"}
        same |= {"qk_norm", "attention_bias"}
        return ModelSpec(
            **self.model_dump(include=same),
            moe=None if self.moe is None else MoESpec(**self.moe.model_dump()),
            mla=None if self.mla is None else MLASpec(**self.mla.model_dump()),
            dense_layers=tuple(range(min(self.num_dense_layers, self.num_layers))),
        )


class WorkloadForm(Section):
    """Default lengths and counts are those of `sim.workload`."""

    kind: Literal["long", "stream", "mixed", "short"] = "long"
    prompt_tokens: PositiveInt | None = None
    count: PositiveInt | None = None
    seed: int = 0

    def asks(self) -> tuple[Ask, ...]:
        keys = {name: getattr(self, name) for name in ("prompt_tokens", "count")}
        given = {name: value for name, value in keys.items() if value is not None}
        return make_workload(self.kind, seed=self.seed, **given)


class Scenario(Section):
    """The whole file."""

    model: Path = Field(description="a model card")
    device: str = Field("ascend_910c", description="a device card, by name or file")
    parallel_config: ParallelConfig = ParallelConfig()
    vpp: VppConfig = VppConfig(method="auto")
    chunking: ChunkingConfig = ChunkingConfig()
    kv: KvConfig = KvConfig()
    workload: WorkloadForm = WorkloadForm()

    def problem(self, asks: tuple[Ask, ...] | None = None) -> Problem:
        """What a planner is asked; `asks` in place of the file's workload.

        Raises ConfigError.
        """
        card, device = read_form(self.model, ModelCard), load_card(self.device)
        spec, tensor_parallel = card.spec(), self.parallel_config.model_parallel
        if spec.num_heads % tensor_parallel:
            raise ConfigError(
                "parallel_config.model_parallel",
                tensor_parallel,
                allowed=f"a divisor of the model's {spec.num_heads} heads",
            )
        memory = None if device.memory_bytes is None else int(device.memory_bytes.value)
        footprint = Footprint(ITEM_BYTES[card.dtype], card.weight_bytes, tensor_parallel, memory)
        config = RunConfig(
            pretrained_model_dir=self.model,
            parallel_config=ParallelConfig(pipeline_stage=self.parallel_config.pipeline_stage),
            vpp=self.vpp,
            chunking=self.chunking,
            kv=self.kv,
        )
        costs = derive(spec, device, footprint, Path(self.device).stem)
        return Problem(config, spec, costs, footprint, asks or self.workload.asks())


def load_scenario(path: str | Path) -> Scenario:
    """Raises ConfigError naming file, line and key of the first mistake."""
    return read_form(Path(path), Scenario)
