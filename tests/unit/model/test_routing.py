"""Packing by expert: every choice is computed once, none dropped, whatever the load."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.model.routing import pack_by_expert


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_every_choice_has_its_row(experts: int, tokens: int, seed: int, skewed: bool) -> None:
    rng = np.random.default_rng(seed)
    top_k = int(rng.integers(1, experts + 1))
    if skewed:
        chosen_TJ = np.tile(np.arange(top_k), (tokens, 1))
    else:
        chosen_TJ = np.stack([rng.permutation(experts)[:top_k] for _ in range(tokens)])
    tokens_Ec, rows_TJ = pack_by_expert(chosen_TJ.astype(np.int32), experts)
    assert len(set(rows_TJ.reshape(-1).tolist())) == rows_TJ.size
    assert tokens_Ec.shape == (experts, np.bincount(chosen_TJ.reshape(-1)).max())
    expert, lane = np.divmod(rows_TJ, tokens_Ec.shape[1])
    assert (expert == chosen_TJ).all()
    assert (tokens_Ec[expert, lane] == np.arange(tokens)[:, None]).all()
