"""`GgufLlama`: a dense Llama model and its tokenizer out of one GGUF file.

Shapes: V vocabulary, H hidden, N query heads, K KV heads, D head dim, F FFN width. Matrices are
float32 [out, in]; `attention.q` and `attention.k` are in Hugging Face's row order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from vpp_ms.errors import CheckpointError

# canonical layer weight -> the tensor's name behind "blk.N."
LAYER_TENSORS = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
_CONTROL = 3  # gguf's token type of a special token


class GgufLlama:
    """Raises CheckpointError when the file is no whole GGUF file of a Llama model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = GGUFReader(str(path))
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise CheckpointError(str(path), f"not a whole GGUF file ({error})") from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        architecture = self.field("general.architecture")
        if architecture != "llama":
            raise CheckpointError(str(path), f"architecture {architecture!r}", allowed="llama")
        self.num_layers: int = self.field("llama.block_count")
        self.num_heads: int = self.field("llama.attention.head_count")
        self.num_kv_heads: int = self.field("llama.attention.head_count_kv")
        self.hidden_size: int = self.field("llama.embedding_length")
        self.intermediate_size: int = self.field("llama.feed_forward_length")
        self.max_position: int = self.field("llama.context_length")
        self.vocab_size: int = self.field("llama.vocab_size")
        self.rope_theta: float = self.field("llama.rope.freq_base")
        # stored as float32: 1e-5 comes back as 9.999999747e-06 without the rounding
        self.rms_eps = float(f"{self.field('llama.attention.layer_norm_rms_epsilon'):.6g}")

    def field(self, key: str) -> Any:
        """A metadata value. Raises CheckpointError when it is missing."""
        field = self._reader.get_field(key)
        if field is None:
            raise CheckpointError(f"{self.path}: {key}", "missing")
        return field.contents()

    @property
    def tied_embeddings(self) -> bool:
        return "output.weight" not in self._tensors

    def embedding(self) -> np.ndarray:
        """[V, H]"""
        return self._read("token_embd.weight")

    def final_norm(self) -> np.ndarray:
        """[H]"""
        return self._read("output_norm.weight")

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """attn_norm, ffn_norm [H], q [N*D, H], k, v [K*D, H], o [H, N*D], gate, up [F, H] and
        down [H, F]."""
        weights = {key: self._read(f"blk.{layer}.{name}") for key, name in LAYER_TENSORS.items()}
        weights["q"] = to_half_split(weights["q"], self.num_heads)
        weights["k"] = to_half_split(weights["k"], self.num_kv_heads)
        return weights

    def special_tokens(self) -> list[tuple[int, str]]:
        """(id, text) of the control tokens."""
        kinds = self.field("tokenizer.ggml.token_type")
        tokens = self.field("tokenizer.ggml.tokens")
        return [(i, tokens[i]) for i, kind in enumerate(kinds) if kind == _CONTROL]

    def _read(self, name: str) -> np.ndarray:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise CheckpointError(str(self.path), f"tensor {name} is missing")
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)


def to_half_split(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from interleaved pairs (0, 1), (2, 3), ... to first and second halves.

    llama.cpp rotates neighbouring rows, Hugging Face rows D/2 apart; llama.cpp's converter
    interleaves the rows of q and k, and this undoes it.
    """
    rows, columns = weight.shape
    paired = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return np.ascontiguousarray(paired.swapaxes(1, 2).reshape(rows, columns))
