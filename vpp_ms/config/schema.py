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
    """MindSpore's execution context."""

    mode: Literal[0] = Field(0, description="0 is GRAPH_MODE, the only one")
    device_target: Literal["CPU", "Ascend", "Emulated"] = Field(
        "CPU",
        description="Ascend is written to the API and not yet run on hardware; Emulated: real "
        "ranks and messages, but a stage waits its predicted time instead of computing",
    )


class ParallelConfig(Section):
    """How many ranks, and what they share out."""

    pipeline_stage: PositiveInt = Field(2, description="ranks of the pipeline")
    model_parallel: PositiveInt = Field(
        1, description="devices of a rank; more than 1 only when emulated"
    )
    expert_parallel: PositiveInt = Field(1, description="1 in this version")


class ModelConfig(Section):
    """How the model is run; what it is stands in its own config.json."""

    compute_dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="of weights, hidden states and KV; float32 on CPU"
    )
    max_seq_len: PositiveInt | None = Field(
        None, description="prompt and output of one request; default: the model's own limit"
    )


class WindowConfig(Section):
    """How much may be in flight at once. One micro-batch always fits."""

    micro_batches: PositiveInt | None = Field(None, description="a cap; default 4 per rank")
    time_chunks: float | None = Field(
        None, gt=0, description="predicted work, in dearest micro-batches; default no cap"
    )


class VppConfig(Section):
    """`method` fills in what is not given here and in `chunking`; keys given explicitly win."""

    method: Literal["cpp", "dcpp", "vpp", "auto"] = Field(
        "vpp",
        description="cpp: plain, fixed chunks; dcpp: plain, dynamic chunks; vpp: v with two "
        "stages a rank, fixed chunks; auto: the planner's pick",
    )
    placement: Literal["plain", "loop", "v"] | None = Field(
        None, description="stage s on rank s; on rank s mod ranks; folded down, up, down, ..."
    )
    virtual_stages: PositiveInt | None = Field(None, description="stages on each rank")
    layer_split: (
        Literal["auto", "turns"] | tuple[PositiveInt, ...] | tuple[tuple[int, int], ...]
    ) = Field(
        "auto",
        description="auto; turns: where layers do not divide, neighbouring ranks share one, "
        "request by request; layers per stage; [first, end) of each stage in model order",
    )
    order: Literal["longest_path", "late_sweep", "early_sweep", "best"] | float = Field(
        "best",
        description="which ready action a rank takes first; a number leans longest_path to late "
        "(> 0) or early sweeps; best tries the others",
    )
    window: WindowConfig = WindowConfig()
    costs: Path | None = Field(
        None,
        description="predicted times: a device card or what `vpp-ms calibrate` wrote; default: "
        "the card of context.device_target",
    )


class EmulationConfig(Section):
    """For context.device_target Emulated; the predicted times are those of vpp.costs."""

    time_scale: Annotated[float, Field(gt=0)] = Field(
        1.0, description="seconds waited per predicted second"
    )
    message_width: PositiveInt | None = Field(
        None, description="floats per token of a message; default: the model's hidden size"
    )


class ChunkingConfig(Section):
    """How a prompt is cut. The last four keys are for dynamic chunks only."""

    method: Literal["fixed", "dynamic", "tail", "dynamic_tail"] | None = Field(
        None, description="default: the method's; a tail cuts the last chunks smaller"
    )
    chunk_tokens: PositiveInt = Field(
        512, description="the (largest) chunk, and the most tokens in a micro-batch"
    )
    alignment: PositiveInt = Field(1, description="sizes are multiples of it, the last one aside")
    preset: Literal["sglang", "vllm_ascend", "atom"] = Field(
        "sglang", description="smoothing, floor and rounding as this server chooses them"
    )
    smoothing: float | None = Field(
        None, ge=0, le=1, description="0 fixed, 1 as the latency says; default: the preset's"
    )
    min_chunk_tokens: PositiveInt | None = Field(
        None, description="no chunk is smaller; default: the preset's"
    )
    latency: tuple[float, float, float] | tuple[float, float, float, float] | None = Field(
        None,
        description="a, b, c of f(l) = a l^2 + b l + c in ms, and what a cached token costs if "
        "it does; default: profiled at start",
    )


class KvConfig(Section):
    """The paged KV pool, the same number of blocks on every rank."""

    block_size: PositiveInt = Field(64, description="tokens per block")
    num_blocks: PositiveInt | None = Field(None, description="default: what the prompts need")
    memory_bytes: PositiveInt | None = Field(
        None, description="of the rank with most layers; in place of num_blocks"
    )


class InputConfig(Section):
    """What is asked, and how answers are sampled."""

    prompts: Path | None = Field(None, description="a .jsonl file or a text file")
    question: str | None = Field(None, description="asked about the text file, as a chat")
    max_new_tokens: Annotated[int, Field(ge=0)] = Field(
        32, description="per request, where the .jsonl line says nothing; 0 prefills only"
    )
    temperature: Annotated[float, Field(ge=0)] = Field(0.0, description="0 is greedy")
    top_k: Annotated[int, Field(ge=0)] = Field(0, description="0 is all")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="1 is all")
    ignore_eos: bool = Field(False, description="go on to max_new_tokens")


class OutputConfig(Section):
    """What is written to output_dir beside result.json."""

    logits: bool = Field(False, description="logits.safetensors: last prompt position per request")
    trace: bool = Field(True, description="trace.json, which opens in ui.perfetto.dev")


class LaunchConfig(Section):
    """How `vpp-ms run` starts the ranks."""

    master_addr: str = Field("127.0.0.1", description="host of rank 0")
    master_port: PositiveInt | None = Field(None, le=65535, description="default: a free one")
    log_dir: Path | None = Field(None, description="default: output_dir/log")
    pin_cores: bool = Field(True, description="one core per rank (CPU)")
    timeout_s: Annotated[float, Field(gt=0)] = Field(3600.0, description="for the whole run")


class RunConfig(Section):
    """The whole file."""

    seed: int = Field(0, description="of sampling")
    run_mode: Literal["predict"] = Field("predict", description="the only one")
    output_dir: Path = Field(Path("output"), description="made when missing")
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
    emulation: EmulationConfig = EmulationConfig()

    @property
    def is_emulated(self) -> bool:
        return self.context.device_target == "Emulated"
