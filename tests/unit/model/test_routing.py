"""Packing by expert: every choice is computed once, none dropped, whatever the load."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.model.routing import pack_by_expert


@given(st.integers(1, 20), st.integers(1, 300), st.integers(0, 2**32 - 1), st.floats(0, 8))
def test_every_choice_has_its_row(experts: int, tokens: int, seed: int, skew: float) -> None:
    rng = np.random.default_rng(seed)
    top_k = int(rng.integers(1, experts + 1))
    scores = rng.standard_normal((tokens, experts)) + skew * rng.standard_normal(experts)
    chosen_TJ = np.argsort(-scores, axis=1)[:, :top_k].astype(np.int32)
    packing = pack_by_expert(chosen_TJ, experts)
    tokens_nc, rows_TJ = packing.tokens_nc, packing.rows_TJ
    assert len(set(rows_TJ.reshape(-1).tolist())) == rows_TJ.size, "no row has two choices"
    tile, lane = np.divmod(rows_TJ, tokens_nc.shape[1])
    assert (tokens_nc[tile, lane] == np.arange(tokens)[:, None]).all()
    experts_n = np.arange(experts) if packing.experts_n is None else packing.experts_n
    assert (experts_n[tile] == chosen_TJ).all()
    assert len(experts_n) == len(tokens_nc)


def test_even_loads_use_the_weights_in_place() -> None:
    chosen_TJ = np.stack([(np.arange(512) + j) % 16 for j in range(4)], axis=1)
    packing = pack_by_expert(chosen_TJ, 16)
    assert packing.experts_n is None and packing.tokens_nc.shape == (16, 128)


def test_one_busy_expert_does_not_widen_all() -> None:
    chosen_TJ = np.tile([3, 7], (512, 1))
    packing = pack_by_expert(chosen_TJ, 16)
    assert packing.tokens_nc.size == 1024 and set(packing.experts_n) == {3, 7}


def test_a_decode_token_reads_only_its_experts() -> None:
    packing = pack_by_expert(np.array([[5, 90, 17]]), 128)
    assert list(packing.experts_n) == [5, 17, 90] and packing.tokens_nc.shape == (3, 1)
