"""The Ascend op set cannot run here; what can be checked is that its names and calls exist."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_models import M0

from vpp_ms.errors import ConfigError


@pytest.fixture(scope="module")
def ascend():
    from vpp_ms.model.ops import ascend as module

    return module


def test_it_has_what_the_op_set_has(ascend) -> None:
    from vpp_ms.model.ops.base import OpSet
    from vpp_ms.model.ops.cpu import CpuOps

    names = {name for name in vars(OpSet) if not name.startswith("_")} | {"dtype"}
    for op_set in (ascend.AscendOps, CpuOps):
        missing = [name for name in names if not hasattr(op_set, name)]
        assert not missing
        for name in names - {"dtype"}:
            ours = inspect.signature(getattr(op_set, name)).parameters
            assert list(ours) == list(inspect.signature(getattr(OpSet, name)).parameters)


def test_every_call_into_mindspore_fits_its_signature(ascend) -> None:
    """Names exist, and keywords and number of arguments are accepted."""
    from mindspore import mint, ops

    calls = {"ops": ops, "mint": mint, "grouped_matmul_v4": ascend.grouped_matmul_v4}
    checked = 0
    for node in ast.walk(ast.parse(Path(ascend.__file__).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        path = ast.unparse(node.func).split(".")
        if not all(name.isidentifier() for name in path) or path[0] not in calls:
            continue
        target = calls[path[0]]
        for name in path[1:]:
            target = getattr(target, name)
        assert callable(target), path
        signature = inspect.signature(target)
        keywords = {keyword.arg: None for keyword in node.keywords}
        signature.bind(*[None] * len(node.args), **keywords)
        checked += 1
    assert checked > 20


def test_its_pages_read_back_token_by_token() -> None:
    from mindspore import Tensor, bfloat16

    from vpp_ms.kv.store import TokenMajorStore

    store = TokenMajorStore([3], num_blocks=4, block_size=2, num_kv_heads=2, head_dim=3)
    values = np.arange(10 * 6, dtype=np.float32).reshape(10, 6)
    store.pages(3).values.set_data(Tensor(values).astype(bfloat16))
    keys, read = store.read(3, [2, 0], 3)
    assert keys.shape == (3, 2, 3) and not keys.any()
    assert np.array_equal(read.reshape(3, 6), values[[4, 5, 0]])


def test_a_sliding_window_is_refused(ascend) -> None:
    with pytest.raises(ConfigError, match="Ascend; allowed: no sliding window"):
        ascend.AscendOps(replace(M0, sliding_window=8))
