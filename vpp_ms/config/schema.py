"""The YAML file, typed and frozen. MindFormers' words where the meaning is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Unknown keys are refused, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ContextConfig(Section):
    mode: Literal[0] = Field(0, description="0 = GRAPH_MODE, the only one")
    device_target: Literal["CPU", "Ascend"] = "CPU"


class ParallelConfig(Section):
    pipeline_stage: PositiveInt = Field(2, description="P, the ranks of the pipeline")
    model_parallel: PositiveInt = 1
    expert_parallel: PositiveInt = 1


class ModelConfig(Section):
    compute_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_seq_len: PositiveInt = 32768


class WindowConfig(Section):
    micro_batches: PositiveInt | None = Field(None, description="cap; default 4 * num_ranks")
    time_chunks: float | None = Field(
        None, gt=0, description="predicted work in flight, in units of the dearest micro-batch"
    )


class VppConfig(Section):
    """`method` fills in what is not given here and in `chunking`; keys given explicitly win."""

    method: Literal["cpp", "dcpp", "vpp", "auto"] = "vpp"
    placement: Literal["plain", "loop", "v"] | None = None
    virtual_stages: PositiveInt | None = None
    layer_split: Literal["auto"] | tuple[PositiveInt, ...] | tuple[tuple[int, int], ...] = Field(
        "auto", description="layers per stage, or [first, end) of each stage in model order"
    )
    order: Literal["longest_path", "late_sweep", "early_sweep", "best"] = "best"
    window: WindowConfig = WindowConfig()


class ChunkingConfig(Section):
    method: Literal["fixed", "dynamic", "tail"] | None = None
    chunk_tokens: PositiveInt = 512
    alignment: PositiveInt = Field(1, description="dynamic sizes are multiples of it")
    preset: Literal["sglang", "vllm_ascend", "atom"] = "sglang"
    smoothing: float | None = Field(None, ge=0, le=1, description="default: the preset's")
    min_chunk_tokens: PositiveInt | None = Field(None, description="default: the preset's")
    latency: tuple[float, float, float] | None = Field(
        None, description="a, b, c of f(l) = a l^2 + b l + c in ms; default: profiled at start"
    )


class KvConfig(Section):
    block_size: PositiveInt = 64
    num_blocks: PositiveInt | None = Field(None, description="default: what the prompts need")
    memory_bytes: PositiveInt | None = None


class InputConfig(Section):
    prompts: Path | None = Field(None, description="a .jsonl file or a text file")
    question: str | None = Field(None, description="asked about the text file, as a chat")
    max_new_tokens: Annotated[int, Field(ge=0)] = 32
    temperature: Annotated[float, Field(ge=0)] = 0.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    ignore_eos: bool = False


class OutputConfig(Section):
    logits: bool = False
    trace: bool = True


class LaunchConfig(Section):
    master_addr: str = "127.0.0.1"
    master_port: PositiveInt | None = Field(None, le=65535, description="default: a free one")
    log_dir: Path | None = Field(None, description="default: output_dir/log")
    pin_cores: bool = True
    timeout_s: Annotated[float, Field(gt=0)] = 3600.0


class RunConfig(Section):
    seed: int = 0
    run_mode: Literal["predict"] = "predict"
    output_dir: Path = Path("output")
    pretrained_model_dir: Path = Field(description="a Hugging Face model directory")
    context: ContextConfig = ContextConfig()
    parallel_config: ParallelConfig = ParallelConfig()
    model: ModelConfig = ModelConfig()
    vpp: VppConfig = VppConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    kv: KvConfig = KvConfig()
    input: InputConfig = InputConfig()
    output: OutputConfig = OutputConfig()
    launch: LaunchConfig = LaunchConfig()
