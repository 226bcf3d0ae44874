"""`HFConfig`: a Hugging Face `config.json`, read key by key, with the spellings of two majors.

Transformers 4 writes `rope_theta` beside `rope_scaling` (kind under `type` or `rope_type`) and
`torch_dtype`; Transformers 5 writes one `rope_parameters` and `dtype`. Every value is checked
here, so that a family's mapping is a plain list of keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vpp_ms.config.model_spec import ModelSpec, MoESpec, RopeSpec
from vpp_ms.errors import CheckpointError

DTYPES = ("float32", "float16", "bfloat16")

# What each kind of scaling may carry beside theta, factor and the original length. `truncate`
# travels as 1.0 or 0.0.
ROPE_PARAMS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": (),
    "dynamic": (),
    "yarn": (
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "llama3": ("high_freq_factor", "low_freq_factor"),
}
_ROPE_REQUIRED = {"llama3": ("high_freq_factor", "low_freq_factor")}
_ROPE_COMMON = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
}


class HFConfig:
    """Typed look-ups in a `config.json`; absent and null are the same. Raises CheckpointError."""

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self._values, self.where = values, where

    @classmethod
    def read(cls, model_dir: Path) -> HFConfig:
        path = model_dir / "config.json"
        return cls(read_json(path), str(path))

    def error(
        self, key: str, got: object, allowed: object = None, hint: str | None = None
    ) -> CheckpointError:
        return CheckpointError(f"{self.where}: {key}", got, allowed=allowed, hint=hint)

    def get(self, *keys: str) -> Any:
        """The value of the first key that is there, or None; spellings must not contradict."""
        found = {key: self._values[key] for key in keys if self._values.get(key) is not None}
        values = list(found.values())
        if any(value != values[0] for value in values[1:]):
            raise self.error(" and ".join(found), values, allowed="one value")
        return values[0] if values else None

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        value = self._required(keys, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(keys[0], repr(value), allowed=f"an integer >= {minimum}")
        return value

    def number(self, *keys: str, default: float | None = None) -> float:
        value = self._required(keys, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(keys[0], repr(value), allowed="a number > 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._required((key,), default)
        if not isinstance(value, bool):
            raise self.error(key, repr(value), allowed="true or false")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers, one integer, or () when absent."""
        value = self.get(key)
        values = () if value is None else value if isinstance(value, list) else (value,)
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in values):
            raise self.error(key, repr(value), allowed="an integer >= 0 or a list of them")
        return tuple(values)

    def optional_integer(self, key: str) -> int | None:
        return None if self.get(key) is None else self.integer(key)

    def only(self, key: str, allowed: object) -> None:
        """Refuse a setting that this code does not implement; absent is fine."""
        value = self.get(key)
        if value is not None and value != allowed:
            raise self.error(key, repr(value), allowed=repr(allowed))

    def dtype(self) -> str:
        value = str(self.get("dtype", "torch_dtype") or "float32").removeprefix("torch.")
        if value not in DTYPES:
            raise self.error("dtype", repr(value), allowed=", ".join(DTYPES))
        return value

    def head_dim(self, hidden_size: int, num_heads: int) -> int:
        """`head_dim`, or hidden size / heads when the key is absent. Even, for the rotation."""
        if self.get("head_dim") is None and hidden_size % num_heads:
            raise self.error(
                "hidden_size", hidden_size, allowed=f"a multiple of {num_heads} heads, or head_dim"
            )
        value = self.integer("head_dim", default=hidden_size // num_heads)
        if value % 2:
            raise self.error("head_dim", value, allowed="an even number")
        return value

    def rope(self, default_theta: float, max_position: int) -> RopeSpec:
        """Either spelling of the rotary embedding, as one `RopeSpec`."""
        table = self.get("rope_parameters") or self.get("rope_scaling") or {}
        if not isinstance(table, Mapping):
            raise self.error("rope_parameters", repr(table), allowed="a table")
        inner = HFConfig(table, f"{self.where}: rope_parameters")
        kind = inner.get("rope_type", "type") or "default"
        if kind not in ROPE_PARAMS:
            raise self.error("rope_type", repr(kind), allowed=", ".join(ROPE_PARAMS))
        unknown = sorted(set(table) - _ROPE_COMMON - set(ROPE_PARAMS[kind]))
        if unknown:
            raise inner.error(unknown[0], repr(table[unknown[0]]), allowed=f"not with {kind}")
        for source in (self, inner):
            source.only("partial_rotary_factor", 1.0)
        theta = inner.number("rope_theta", default=self.number("rope_theta", default=default_theta))
        if kind == "default":
            return RopeSpec(theta=theta, original_max_position=max_position)
        original = inner.integer("original_max_position_embeddings", default=max_position)
        factor = inner.get("factor")
        if factor is None and kind == "yarn":
            factor = max_position / original
        return RopeSpec(
            theta=theta,
            kind=kind,
            factor=inner.number("factor", default=factor),
            original_max_position=original,
            params=_rope_params(inner, kind),
        )

    def eos_token_ids(self, model_dir: Path) -> tuple[int, ...]:
        """Of `generation_config.json` when it names some, as Transformers does, else ours."""
        path = model_dir / "generation_config.json"
        if path.is_file():
            ids = HFConfig(read_json(path), str(path)).integers("eos_token_id")
            if ids:
                return ids
        return self.integers("eos_token_id")

    def _required(self, keys: Iterable[str], default: Any) -> Any:
        value = self.get(*keys)
        if value is None:
            value = default
        if value is None:
            raise self.error(" or ".join(keys), "missing", allowed="a value")
        return value


def read_decoder(
    config: HFConfig, model_dir: Path, *, family: str, rope_theta: float, rms_eps: float
) -> ModelSpec:
    """What every decoder's config holds; the keywords are the family's defaults.

    The family adds its experts and other particulars with `dataclasses.replace`. Raises
    CheckpointError for what no stage of ours implements.
    """
    config.only("hidden_act", "silu")
    for key in ("quantization_config", "auto_map", "is_encoder_decoder", "layer_types"):
        _refuse(config, key)
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise config.error("num_key_value_heads", num_kv_heads, allowed=f"a divisor of {num_heads}")
    max_position = config.integer("max_position_embeddings")
    return ModelSpec(
        family=family,
        num_layers=config.integer("num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=config.head_dim(hidden_size, num_heads),
        vocab_size=config.integer("vocab_size"),
        intermediate_size=config.integer("intermediate_size"),
        max_position=max_position,
        rms_eps=config.number("rms_norm_eps", default=rms_eps),
        rope=config.rope(rope_theta, max_position),
        tied_embeddings=config.flag("tie_word_embeddings", default=False),
        eos_token_ids=config.eos_token_ids(model_dir),
        dtype=config.dtype(),
    )


def read_experts(config: HFConfig, intermediate_size: int, norm_topk: bool) -> MoESpec:
    """Both spellings of the number of experts; top-k must not exceed it."""
    num_experts = config.integer("num_local_experts", "num_experts")
    top_k = config.integer("num_experts_per_tok")
    if top_k > num_experts:
        raise config.error("num_experts_per_tok", top_k, allowed=f"1 to {num_experts} experts")
    return MoESpec(num_experts, top_k, intermediate_size, norm_topk)


def _refuse(config: HFConfig, key: str) -> None:
    value = config.get(key)
    if value:
        text = repr(value)
        raise config.error(key, text if len(text) < 80 else f"{text[:77]}...", allowed="absent")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError naming the file when it is anything else."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(str(path), "no such file") from None
    except OSError as error:
        raise CheckpointError(str(path), error.strerror or error) from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise CheckpointError(str(path), f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise CheckpointError(str(path), type(values).__name__, allowed="a JSON object")
    return values


def _rope_params(table: HFConfig, kind: str) -> tuple[tuple[str, float], ...]:
    params: dict[str, float] = {}
    for name in sorted(ROPE_PARAMS[kind]):
        if name == "truncate" and table.get(name) is not None:
            params[name] = float(table.flag(name, default=True))
        elif table.get(name) is not None:
            params[name] = table.number(name)
        elif name in _ROPE_REQUIRED.get(kind, ()):
            raise table.error(name, "missing", allowed=f"a number, for {kind}")
    return tuple(params.items())
