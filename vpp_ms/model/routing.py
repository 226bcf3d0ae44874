"""Which row of which expert computes which token: index arrays made on the host. Pure numpy.

Letters: T tokens, J chosen experts per token, E experts, c the greatest load of an expert.
"""

from __future__ import annotations

import numpy as np


def pack_by_expert(experts_TJ: np.ndarray, num_experts: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens int32 [E, c], rows int32 [T, J]): no token is dropped, c is as large as it must be.

    Expert e computes the tokens `tokens[e]`, in order, padded with token 0; choice (t, j) is row
    `rows[t, j]` of the E * c results.
    """
    top_k = experts_TJ.shape[1]
    flat = experts_TJ.reshape(-1)
    order = np.argsort(flat, kind="stable")
    loads_E = np.bincount(flat, minlength=num_experts)
    capacity = int(loads_E.max())
    rank = np.arange(flat.size) - np.repeat(np.cumsum(loads_E) - loads_E, loads_E)
    rows = np.empty(flat.size, np.int32)
    rows[order] = flat[order] * capacity + rank
    tokens_Ec = np.zeros((num_experts, capacity), np.int32)
    tokens_Ec.reshape(-1)[rows] = np.arange(flat.size) // top_k
    return tokens_Ec, rows.reshape(-1, top_k)
