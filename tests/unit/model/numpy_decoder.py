"""The decoder in float64 numpy, a token at a time where it helps: the reference of the tests.

Letters: T tokens, N query heads, K KV heads, D head dim.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.model.rope import RotaryTable
from vpp_ms.model.weights import WeightSource

Array = np.ndarray


def forward(spec: ModelSpec, source: WeightSource, ids_T: Array) -> tuple[Array, list]:
    """(logits [T, V], per layer (keys, values), each [T, K, D])."""
    x = source.embedding()[ids_T].astype(np.float64)
    cos, sin = RotaryTable(spec)(np.arange(len(ids_T)))
    cache = []
    for layer in range(spec.num_layers):
        w = source.layer(layer)
        attended, keys_values = _attention(spec, w, _norm(x, w["attn_norm"], spec), cos, sin)
        x = x + attended
        normed = _norm(x, w["ffn_norm"], spec)
        x = x + (_moe(spec, w, normed) if "router" in w else _swiglu(normed, w))
        cache.append(keys_values)
    return _norm(x, source.final_norm(), spec) @ source.head().T, cache


def _attention(
    spec: ModelSpec, w: Mapping[str, Array], x: Array, cos: Array, sin: Array
) -> tuple[Array, tuple[Array, Array]]:
    heads = {}
    for name in "qkv":
        y = x @ w[name].T + (w[name + "_bias"] if spec.attention_bias else 0)
        heads[name] = y.reshape(len(x), -1, spec.head_dim)
        if spec.qk_norm and name != "v":
            heads[name] = _norm(heads[name], w[name + "_norm"], spec)
    q, k = (_rotate(heads[name], cos, sin) for name in "qk")
    group = spec.num_heads // spec.num_kv_heads
    scores = np.einsum("tnd,snd->nts", q, np.repeat(k, group, 1)) * spec.head_dim**-0.5
    distance = np.arange(len(x))[:, None] - np.arange(len(x))
    hidden = distance < 0
    if spec.sliding_window is not None:
        hidden |= distance >= spec.sliding_window
    scores[:, hidden] = -np.inf
    weights = _softmax(scores)
    mixed = np.einsum("nts,snd->tnd", weights, np.repeat(heads["v"], group, 1))
    return mixed.reshape(len(x), -1) @ w["o"].T, (k, heads["v"])


def _moe(spec: ModelSpec, w: Mapping[str, Array], x: Array) -> Array:
    assert spec.moe is not None
    shares = _softmax(x @ w["router"].T)
    chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : spec.moe.top_k]
    y = np.zeros_like(x)
    for t, experts in enumerate(chosen):
        weights = shares[t, experts]
        if spec.moe.norm_topk:
            weights = weights / weights.sum()
        for weight, e in zip(weights, experts, strict=True):
            y[t] += weight * _swiglu(x[t], {n: w[n][e] for n in ("gate", "up", "down")})
    return y


def _swiglu(x: Array, w: Mapping[str, Array]) -> Array:
    gate = x @ w["gate"].T
    return (gate / (1 + np.exp(-gate)) * (x @ w["up"].T)) @ w["down"].T


def _norm(x: Array, weight: Array, spec: ModelSpec) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + spec.rms_eps) * weight


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    return x * cos[:, None] + np.roll(x, x.shape[-1] // 2, -1) * sin[:, None]
