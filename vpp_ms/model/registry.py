"""Which family of the model zoo a model directory belongs to, and its `ModelSpec`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import CheckpointError, nearest
from vpp_ms.model.family import Family
from vpp_ms.model.hf_config import HFConfig

# model_type -> architecture; the folder in the zoo is named after the model_type. Folders are
# imported on demand: one family never pays for another.
FAMILIES: dict[str, str] = {
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def load_family(name: str) -> Family:
    """The family called `name`, a key of `FAMILIES`."""
    family = import_module(f"vpp_ms.model_zoo.{name}").FAMILY
    assert isinstance(family, Family) and family.name == name, f"model_zoo/{name} is misnamed"
    return family


def find_family(config: HFConfig) -> Family:
    """By `model_type`, or by `architectures` when that is absent. Raises CheckpointError."""
    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    if model_type is None:
        by_architecture = {arch: name for name, arch in FAMILIES.items()}
        model_type = next((by_architecture[a] for a in architectures if a in by_architecture), None)
    if isinstance(model_type, str) and model_type in FAMILIES:
        known = FAMILIES[model_type]
        if architectures and known not in architectures:
            raise config.error("architectures", architectures, allowed=known)
        return load_family(model_type)
    key, got = (
        ("architectures", architectures) if model_type is None else ("model_type", model_type)
    )
    meant = nearest(str(model_type), FAMILIES)
    raise config.error(
        key,
        repr(got),
        allowed=", ".join(f"{name} ({arch})" for name, arch in FAMILIES.items()),
        hint=f"is it {meant}?" if meant else "a checkpoint of a known family",
    )


def load_spec(model_dir: Path) -> ModelSpec:
    """The model of a Hugging Face directory. Raises CheckpointError for anything unsupported."""
    if not model_dir.is_dir():
        raise CheckpointError(
            str(model_dir),
            "no such directory",
            allowed="a Hugging Face model directory",
            hint="vpp-ms prepare-demo, which makes one",
        )
    config = HFConfig.read(model_dir)
    return find_family(config).read_spec(config, model_dir)
