"""Keys that depend on one another. Each check raises one `ConfigError` naming the key to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vpp_ms.config.schema import RunConfig, Section
from vpp_ms.errors import ConfigError

Where = Callable[[str], str]

DYNAMIC_ONLY = ("preset", "smoothing", "min_chunk_tokens", "latency")
DYNAMIC_METHODS = ("dcpp", "auto")
PLAIN_METHODS = ("cpp", "dcpp")


def check_config(config: RunConfig, where: Where, methods: Sequence[str]) -> None:
    """`where` turns a dotted key into the place it was written at."""
    _check_not_built(config, where)
    if len(methods) == 1:
        _check_placement(config, where, methods[0])
    _check_chunking(config, where, methods)
    _check_kv(config, where)
    _check_input(config, where)
    _check_output(config, where)


def _given(section: Section, name: str) -> bool:
    """Written down with a value: `null` asks for the default."""
    return name in section.model_fields_set and getattr(section, name) is not None


def _check_not_built(config: RunConfig, where: Where) -> None:
    emulated = config.is_emulated  # there only the predicted times know of a rank's devices
    for name in ("expert_parallel",) if emulated else ("model_parallel", "expert_parallel"):
        got = getattr(config.parallel_config, name)
        if got != 1:
            raise ConfigError(
                where(f"parallel_config.{name}"),
                got,
                allowed="1 in this version",
                hint="more ranks by parallel_config.pipeline_stage",
            )
    if config.context.device_target == "CPU" and config.model.compute_dtype != "float32":
        raise ConfigError(
            where("model.compute_dtype"),
            f"{config.model.compute_dtype!r} on CPU",
            allowed="float32",
        )


def _check_placement(config: RunConfig, where: Where, method: str) -> None:
    stages = config.vpp.virtual_stages
    if stages is None or stages == 1:
        return
    placement = config.vpp.placement
    if placement is None and method in PLAIN_METHODS:
        raise ConfigError(
            where("vpp.virtual_stages"),
            f"{stages} with method {method}, whose placement is plain",
            allowed="1",
            hint="vpp.method: vpp, or vpp.placement: v or loop",
        )
    if placement == "plain":
        raise ConfigError(
            where("vpp.virtual_stages"),
            f"{stages} with placement plain",
            allowed="1",
            hint="vpp.placement: v or loop",
        )


def _check_chunking(config: RunConfig, where: Where, methods: Sequence[str]) -> None:
    chunking = config.chunking
    fixed = chunking.method if chunking.method is not None else _implied(methods)
    if not fixed.startswith("dynamic"):
        for name in DYNAMIC_ONLY:
            if _given(chunking, name):
                raise ConfigError(
                    where(f"chunking.{name}"),
                    f"given, and chunking.method is {fixed}",
                    allowed="only with chunking.method: dynamic",
                    hint=f"chunking.method: dynamic, or leave {name} out",
                )
    for name in ("alignment", "min_chunk_tokens"):
        got = getattr(chunking, name)
        if got is not None and got > chunking.chunk_tokens:
            raise ConfigError(
                where(f"chunking.{name}"),
                got,
                allowed=f"at most chunking.chunk_tokens ({chunking.chunk_tokens})",
            )


def _implied(methods: Sequence[str]) -> str:
    return "dynamic" if any(method in DYNAMIC_METHODS for method in methods) else "fixed"


def _check_kv(config: RunConfig, where: Where) -> None:
    if _given(config.kv, "num_blocks") and _given(config.kv, "memory_bytes"):
        raise ConfigError(
            where("kv.memory_bytes"),
            "given, and kv.num_blocks too",
            allowed="one of the two",
            hint="leave kv.num_blocks out",
        )


def _check_input(config: RunConfig, where: Where) -> None:
    question, prompts = config.input.question, config.input.prompts
    if question is None:
        return
    if prompts is None:
        raise ConfigError(
            where("input.question"),
            "given without input.prompts",
            allowed="a text file to ask about",
        )
    if prompts.suffix == ".jsonl":
        raise ConfigError(
            where("input.question"),
            f"given, and input.prompts is {prompts.name}",
            allowed="a question about a text file; a .jsonl holds its own",
            hint='lines of {"id": ..., "messages": [...]}',
        )


def _check_output(config: RunConfig, where: Where) -> None:
    _check_directory(config.output_dir, where("output_dir"))
    if config.launch.log_dir is not None:
        _check_directory(config.launch.log_dir, where("launch.log_dir"))


def _check_directory(path: Path, place: str) -> None:
    for part in (path, *path.parents):
        if part.exists():
            if not part.is_dir():
                raise ConfigError(place, f"{part} is not a directory", allowed="a directory")
            return
