"""`CheckpointReader`: weights of a Hugging Face directory under canonical names, as float32.

Shapes: V vocabulary, H hidden, N query heads, K KV heads, D head dim, F FFN width, E experts.
Matrices keep the checkpoint's orientation [out, in].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import CheckpointError
from vpp_ms.model.family import ExpertNames
from vpp_ms.model.hf_config import read_json
from vpp_ms.model.registry import load_family, load_spec
from vpp_ms.model.tensor_file import READABLE, TensorFile
from vpp_ms.model.weights import layer_shapes

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
_SHOWN = 3  # names in an error message
_BUFFERS = ".rotary_emb.inv_freq"  # saved by old versions; computed, not read


class Part(NamedTuple):
    """One tensor of the checkpoint and where it goes: all of `key`, or its row `expert`."""

    name: str
    shape: tuple[int, ...]
    key: str
    expert: int | None = None


class CheckpointReader:
    """Reads single layers, lazily: opening it reads names, `check` reads headers.

    Raises CheckpointError for a directory, file or weight that is not what config.json says.
    """

    def __init__(self, model_dir: Path | str, spec: ModelSpec | None = None) -> None:
        self.model_dir = Path(model_dir)
        self.spec = load_spec(self.model_dir) if spec is None else spec
        self._names = load_family(self.spec.family).weight_names
        self._files: dict[str, TensorFile] = {}
        self._file_of = self._locate()

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """attn_norm [H], q [N*D, H], k and v [K*D, H], o [H, N*D], ffn_norm [H], with qk_norm
        q_norm and k_norm [D]; dense: gate, up [F, H], down [H, F]; MoE: router [E, H],
        gate, up [E, F, H], down [E, H, F].
        """
        weights: dict[str, np.ndarray] = {}
        for part in self._layer_parts(layer):
            target = weights.get(part.key)
            if target is None:
                target = self._empty(part)
                weights[part.key] = target
            self._read_into(part, target if part.expert is None else target[part.expert])
        if "gate_up" in weights:
            fused = weights.pop("gate_up")
            width = fused.shape[1] // 2
            weights["gate"] = np.ascontiguousarray(fused[:, :width])
            weights["up"] = np.ascontiguousarray(fused[:, width:])
        return weights

    def embedding(self) -> np.ndarray:
        """[V, H]"""
        return self._read(self._embedding_part())

    def final_norm(self) -> np.ndarray:
        """[H]"""
        return self._read(self._final_norm_part())

    def head(self) -> np.ndarray:
        """[V, H]; the embedding when the config ties them."""
        return self._read(self._head_part())

    def check(self, layers: Iterable[int], with_embedding: bool, with_head: bool) -> None:
        """Refuse before any weight is read: names of the whole model, shapes of these layers.

        Reads the headers of the files that hold them, nothing else.
        """
        self._check_names()
        for layer in layers:
            self._check_headers(self._layer_parts(layer))
        if with_embedding:
            self._check_headers([self._embedding_part()])
        if with_head:
            self._check_headers([self._final_norm_part(), self._head_part()])

    def _check_names(self) -> None:
        parts = [self._embedding_part(), self._final_norm_part(), self._head_part()]
        for layer in range(self.spec.num_layers):
            parts.extend(self._layer_parts(layer))
        expected = {part.name for part in parts}
        missing = [name for name in expected if name not in self._file_of]
        if missing:
            raise CheckpointError(str(self.model_dir), f"weights missing: {_some(missing)}")
        unexpected = [
            name
            for name in self._file_of.keys() - expected
            if not name.endswith(_BUFFERS) and name != self._names.head
        ]
        if unexpected:
            raise CheckpointError(
                str(self.model_dir),
                f"unexpected weights: {_some(unexpected)}",
                allowed=f"those of {self.spec.num_layers} {self.spec.family} layers (config.json)",
            )

    def _check_headers(self, parts: Iterable[Part]) -> None:
        for part in parts:
            file = self._file(part)
            info = file.tensors[part.name]
            where = f"{file.path}: {part.name}"
            if info.shape != part.shape:
                raise CheckpointError(
                    where,
                    f"shape {list(info.shape)}",
                    allowed=f"{list(part.shape)}, as config.json says",
                )
            if info.dtype not in READABLE:
                raise CheckpointError(where, info.dtype, allowed=f"one of {', '.join(READABLE)}")

    def _layer_parts(self, layer: int) -> Iterator[Part]:
        assert 0 <= layer < self.spec.num_layers, f"layer {layer} of {self.spec.num_layers}"
        shapes = layer_shapes(self.spec, layer)
        templates = dict(self._names.attention)
        if self.spec.layer_kind(layer) == "dense":
            templates |= self._names.dense
        else:
            experts = self._spelling(layer)
            templates |= {"router": experts.router, **experts.weights}
        if "gate_up" in templates:
            num_experts, width, hidden = shapes["gate"]
            shapes["gate_up"] = (num_experts, 2 * width, hidden)
        for key, template in templates.items():
            if "{expert}" not in template:
                yield Part(template.format(layer=layer), shapes[key], key)
                continue
            num_experts, *shape = shapes[key]
            for expert in range(num_experts):
                name = template.format(layer=layer, expert=expert)
                yield Part(name, tuple(shape), key, expert)

    def _spelling(self, layer: int) -> ExpertNames:
        """The spelling of which the checkpoint has any expert; the usual one when it has none."""
        for names in self._names.experts:
            for template in names.weights.values():
                if template.format(layer=layer, expert=0) in self._file_of:
                    return names
        return self._names.experts[0]

    def _embedding_part(self) -> Part:
        shape = (self.spec.vocab_size, self.spec.hidden_size)
        return Part(self._names.embedding, shape, "embedding")

    def _final_norm_part(self) -> Part:
        return Part(self._names.final_norm, (self.spec.hidden_size,), "final_norm")

    def _head_part(self) -> Part:
        if self.spec.tied_embeddings:
            return self._embedding_part()
        return Part(self._names.head, (self.spec.vocab_size, self.spec.hidden_size), "head")

    def _empty(self, part: Part) -> np.ndarray:
        moe = self.spec.moe
        lead = () if part.expert is None or moe is None else (moe.num_experts,)
        return np.empty((*lead, *part.shape), np.float32)

    def _read(self, part: Part) -> np.ndarray:
        out = self._empty(part)
        self._read_into(part, out)
        return out

    def _read_into(self, part: Part, out: np.ndarray) -> None:
        self._check_headers([part])
        self._file(part).read_into(part.name, out)

    def _file(self, part: Part) -> TensorFile:
        file_name = self._file_of.get(part.name)
        if file_name is None:
            raise CheckpointError(str(self.model_dir), f"weights missing: {part.name}")
        file = self._open(file_name)
        if part.name not in file.tensors:
            raise CheckpointError(
                str(file.path), f"{part.name} is not in it", allowed=f"what {INDEX_FILE} says"
            )
        return file

    def _open(self, file_name: str) -> TensorFile:
        if file_name not in self._files:
            self._files[file_name] = TensorFile(self.model_dir / file_name)
        return self._files[file_name]

    def _locate(self) -> dict[str, str]:
        """Weight name -> file name, from the index, or from the single file's header."""
        index = self.model_dir / INDEX_FILE
        if not index.is_file():
            if not (self.model_dir / SINGLE_FILE).is_file():
                raise CheckpointError(
                    str(self.model_dir),
                    "no weights",
                    allowed=f"{SINGLE_FILE}, or {INDEX_FILE} and its files",
                )
            return dict.fromkeys(self._open(SINGLE_FILE).tensors, SINGLE_FILE)
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index}: weight_map", repr(weight_map), allowed="a table")
        for name, file_name in weight_map.items():
            if not isinstance(file_name, str) or Path(file_name).name != file_name:
                raise CheckpointError(
                    f"{index}: {name}", repr(file_name), allowed="a file name in this directory"
                )
        return weight_map


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    rest = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
