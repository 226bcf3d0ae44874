"""BlockPool: all or nothing, never a block twice, never a leak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpp_ms.errors import RequestError
from vpp_ms.kv.blocks import BlockPool

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 70)), max_size=60)


@given(st.integers(1, 12), st.integers(1, 8), STEPS)
def test_blocks_are_never_shared_or_lost(num_blocks: int, size: int, steps: list) -> None:
    pool = BlockPool(num_blocks, size)
    tables: dict[int, tuple[int, ...]] = {}
    for allocate, request, tokens in steps:
        if not allocate:
            pool.free(request)
            tables.pop(request, None)
        elif -(-tokens // size) > num_blocks:
            with pytest.raises(RequestError, match=f"request {request}.*{num_blocks * size}"):
                pool.allocate(request, tokens)
        else:
            before, free = tables.get(request, ()), pool.num_free
            table = pool.allocate(request, tokens)
            missing = max(0, -(-tokens // size) - len(before))
            assert (table is None) == (missing > free)
            if table is None:
                assert pool.num_free == free
            else:
                assert table[: len(before)] == before and len(table) == len(before) + missing
                tables[request] = table
        held = [block for table in tables.values() for block in table]
        assert len(set(held)) == len(held) == num_blocks - pool.num_free
        assert all(pool.table(request) == table for request, table in tables.items())
    for request in list(tables):
        pool.free(request)
    assert pool.num_free == num_blocks


def test_tail_page_does_not_leak_on_each_prefill() -> None:
    pool = BlockPool(6, 4)
    tables = []
    for _ in range(20):
        tables.append(pool.allocate(7, 18))
        pool.free(7)
    assert pool.num_free == 6
    assert set(tables) == {(0, 1, 2, 3, 4)}, "the same history gives the same blocks"


def test_freeing_twice_frees_once() -> None:
    pool = BlockPool(3, 4)
    pool.allocate(1, 5)
    pool.free(1)
    pool.free(1)
    assert pool.num_free == 3 and pool.table(1) == ()
