"""Which row of which expert computes which token: index arrays made on the host. Pure numpy.

Letters: T tokens, J chosen experts per token, E experts, n tiles, c rows of a tile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Measured, in the time that computing one row takes: to read an expert's weights, to copy them.
READ_ROWS, COPY_ROWS = 24, 48


class Packing(NamedTuple):
    """`tokens_nc`: what each row computes, padded with token 0. `rows_TJ`: where choice (t, j)
    lies among the n * c results. `experts_n`: whose tile it is; None if there is one tile for
    every expert in turn, so that the weights are used where they are."""

    tokens_nc: np.ndarray
    rows_TJ: np.ndarray
    experts_n: np.ndarray | None


def pack_by_expert(experts_TJ: np.ndarray, num_experts: int) -> Packing:
    """Cut each expert's tokens, in order, into tiles of one size. No token is dropped.

    One tile per expert, as large as the greatest load, if the loads are about even; else tiles
    of the size that costs least, each with a copy of its expert's weights.
    """
    flat = experts_TJ.reshape(-1)
    loads_E = np.bincount(flat, minlength=num_experts)
    capacity = _cheapest_capacity(loads_E)
    copied = capacity is not None
    if capacity is None:
        capacity = int(loads_E.max())
    tiles_E = -(-loads_E // capacity) if copied else np.ones_like(loads_E)
    order = np.argsort(flat, kind="stable")
    rank = np.arange(flat.size) - np.repeat(np.cumsum(loads_E) - loads_E, loads_E)
    rows = np.empty(flat.size, np.int32)
    rows[order] = np.repeat(np.cumsum(tiles_E) - tiles_E, loads_E) * capacity + rank
    tokens_nc = np.zeros((tiles_E.sum(), capacity), np.int32)
    tokens_nc.reshape(-1)[rows] = np.arange(flat.size) // experts_TJ.shape[1]
    experts_n = np.repeat(np.arange(num_experts), tiles_E) if copied else None
    return Packing(tokens_nc, rows.reshape(experts_TJ.shape), experts_n)


def _cheapest_capacity(loads_E: np.ndarray) -> int | None:
    """The size of tiles with copied weights, or None where one tile per expert is cheaper."""
    busy = loads_E[loads_E > 0]
    sizes_S = np.unique(-(-busy[:, None] // np.arange(1, 4)))
    tiles_S = (-(-busy // sizes_S[:, None])).sum(axis=1)
    costs_S = tiles_S * (np.maximum(sizes_S, READ_ROWS) + COPY_ROWS)
    best = int(np.argmin(costs_S))
    in_place = loads_E.size * max(int(loads_E.max()), READ_ROWS)
    return int(sizes_S[best]) if costs_S[best] < in_place else None
