"""Stages on CPU against float64 numpy: chunks, packing, splits, history, and what must fail."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_decoder import forward
from tiny_models import BLOCK_SIZE, M0, NUM_BLOCKS, SPECS, Model

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.errors import RequestError
from vpp_ms.model.weights import WeightSource, random_weights
from vpp_ms.model.worklist import TileLimits
from vpp_ms.schedule.actions import Segment

GetModel = Callable[[str], Model]
SMALL_TILES = TileLimits(rows=6, columns=8, scores=4 * 6 * 8, solo_rows=3)


def random_table(rng: np.random.Generator, length: int) -> tuple[int, ...]:
    blocks = rng.permutation(NUM_BLOCKS)[: -(-length // BLOCK_SIZE)]
    return tuple(int(block) for block in blocks)


def cut(length: int, sizes: list[int]) -> list[int]:
    """`length` in parts of these sizes, taken in turn."""
    parts: list[int] = []
    while sum(parts) < length:
        size = sizes[len(parts) % len(sizes)]
        parts.append(min(size, length - sum(parts)))
    return parts


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("limits", [TileLimits(), SMALL_TILES], ids=["one_tile", "many_tiles"])
def test_logits_and_kv_equal_numpy(
    model: GetModel, rng: np.random.Generator, name: str, limits: TileLimits
) -> None:
    tiny = model(name)
    ids = rng.integers(0, 97, 61).astype(np.int32)
    logits_TV, cache = forward(tiny.spec, tiny.source, ids)
    stage = tiny.stage(limits=limits)
    for sizes in ([61], [17, 31, 13], [4], [60, 1]):
        blocks, parts = random_table(rng, 61), cut(61, sizes)
        got = tiny.prefill([stage], ids, blocks, parts)
        np.testing.assert_allclose(got, logits_TV[np.cumsum(parts) - 1], atol=1e-4)
        for layer, expected in enumerate(cache):
            for ours, theirs in zip(stage.kv.read(layer, blocks, 61), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.sampled_from([7, 23, 61]))
def test_any_partition_equals_unchunked(model: GetModel, sizes: list[int], length: int) -> None:
    tiny, rng = model("qwen3_moe"), np.random.default_rng(length)
    ids = rng.integers(0, 97, length).astype(np.int32)
    whole, chunked = tiny.stage(), tiny.stage(limits=SMALL_TILES)
    tables = random_table(rng, length), random_table(rng, length)
    expected = tiny.prefill([whole], ids, tables[0], [length])
    got = tiny.prefill([chunked], ids, tables[1], cut(length, sizes))
    np.testing.assert_allclose(got[-1], expected[-1], atol=1e-4)
    for layer in range(tiny.spec.num_layers):
        pairs = zip(
            whole.kv.read(layer, tables[0], length),
            chunked.kv.read(layer, tables[1], length),
            strict=True,
        )
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("split", [[2], [1, 2, 3, 4], [4]], ids=str)
@pytest.mark.parametrize("parts", [[61], [16, 16, 16, 13], [1, 33, 2, 25]], ids=str)
def test_splitting_into_stages_changes_no_bit(
    model: GetModel, rng: np.random.Generator, split: list[int], parts: list[int]
) -> None:
    tiny, blocks = model("qwen3_moe"), random_table(rng, 61)
    ids = rng.integers(0, 97, 61).astype(np.int32)
    bounds = [0, *split, tiny.spec.num_layers]
    stages = [tiny.stage(a, b) for a, b in pairwise(bounds)]
    one = tiny.prefill([tiny.stage()], ids, blocks, parts)
    many = tiny.prefill(stages, ids, blocks, parts)
    assert np.array_equal(one, many)


@pytest.mark.parametrize("limits", [TileLimits(), SMALL_TILES], ids=["one_tile", "many_tiles"])
@pytest.mark.parametrize("name", ["qwen3_moe", "windowed"])
def test_a_packed_micro_batch_equals_each_request_alone(
    model: GetModel, rng: np.random.Generator, name: str, limits: TileLimits
) -> None:
    """A chunk at a prefix, two short prompts, a chunk without sample and two decode tokens."""
    tiny, packed, alone = model(name), *(model(name).stage(limits=limits) for _ in range(2))
    free, segments, requests = iter(range(NUM_BLOCKS)), [], []
    for r, (start, length) in enumerate([(16, 21), (0, 5), (0, 2), (8, 16), (40, 1), (3, 1)]):
        blocks = tuple(next(free) for _ in range(-(-(start + length) // BLOCK_SIZE)))
        segments.append(Segment(r, start, length, r != 3, blocks))
        requests.append(rng.integers(0, 97, start + length).astype(np.int32))
        if start:
            for stage in (packed, alone):
                before = Segment(r, 0, start, False, blocks)
                stage.run(tiny.batch(before), requests[r][:start])
    expected = []
    for s in segments:
        logits = alone.run(tiny.batch(s), requests[s.request][s.start :])
        expected += [] if logits is None else [logits[0]]
    ids = np.concatenate([requests[s.request][s.start :] for s in segments])
    got = packed.run(tiny.batch(*segments), ids)
    assert got.dtype == np.float32 and got.shape == (5, 97)
    np.testing.assert_allclose(got, np.stack(expected), atol=1e-5)


def test_stale_slots_never_matter(model: GetModel, rng: np.random.Generator) -> None:
    """Long, short, then middling requests over the same blocks; even if a stale value is NaN."""
    tiny = model("qwen3_moe")
    used, blocks = tiny.stage(), tuple(range(16))
    slots = used.kv.rows(np.arange(NUM_BLOCKS * BLOCK_SIZE)).reshape(-1)
    for pages in (used.kv.pages(layer) for layer in range(5)):
        for parameter in pages:
            stale = parameter.asnumpy().copy()
            stale[slots, :8] = np.nan
            parameter.set_data(_tensor(stale))
    for length, parts in ((31, [16, 15]), (5, [5]), (17, [3, 1, 13]), (18, [17, 1])):
        ids = rng.integers(0, 97, length).astype(np.int32)
        fresh = tiny.prefill([tiny.stage()], ids, blocks, parts)
        assert np.array_equal(tiny.prefill([used], ids, blocks, parts), fresh)


def test_padding_writes_to_the_requests_own_slots_only(
    model: GetModel, rng: np.random.Generator
) -> None:
    tiny = model("qwen3_moe")
    stage = tiny.stage()
    for r in range(3):
        ids = rng.integers(0, 97, 18).astype(np.int32)
        tiny.prefill([stage], ids, tuple(range(5 * r, 5 * r + 5)), [18])
    before = [p.asnumpy().copy() for p in stage.kv.pages(2)]
    segments = (
        Segment(0, 18, 1, True, tuple(range(5))),
        Segment(2, 18, 2, True, (10, 11, 12, 13, 14)),
    )
    stage.run(tiny.batch(*segments), np.array([1, 2, 3], np.int32))
    changed = stage.kv.rows(np.array([18, 58, 59])).reshape(-1)
    for ours, page in zip(before, stage.kv.pages(2), strict=True):
        rows = np.flatnonzero((ours != page.asnumpy()).any(axis=1))
        assert sorted(rows) == sorted(changed)


def test_nan_stays_in_its_request(model: GetModel, rng: np.random.Generator) -> None:
    """The engine fails the request; its neighbour in the micro-batch and the next are served."""
    tiny = model("qwen3_moe")
    first, second = tiny.stage(0, 2), tiny.stage(2, 5)
    segments = Segment(0, 0, 6, True, (0, 1)), Segment(1, 0, 9, True, (2, 3, 4))
    ids = rng.integers(0, 97, 15).astype(np.int32)
    batch = tiny.batch(*segments)
    hidden = first.run(batch, ids).asnumpy().copy()
    clean = second.run(batch, _tensor(hidden))
    for bad in (np.nan, np.inf):
        spoilt = hidden.copy()
        spoilt[3] = bad
        logits = second.run(batch, _tensor(spoilt))
        assert not np.isfinite(logits[0]).all()
        np.testing.assert_allclose(logits[1], clean[1], atol=1e-5)
        again = second.run(batch, _tensor(hidden))
        assert np.array_equal(again, clean)


class Altered:
    """The weights of another source, each layer's changed by a function."""

    def __init__(self, source: WeightSource, change: Callable[[dict], dict]) -> None:
        self._source, self._change = source, change

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def layer(self, layer: int) -> dict:
        weights = dict(self._source.layer(layer))
        return weights | self._change(weights)


def altered_model(spec: ModelSpec, change: Callable[[dict], dict]) -> Model:
    from vpp_ms.model.bank import LayerBank

    source = Altered(random_weights(spec, seed=1), change)
    return Model(spec, source, LayerBank(spec, source))


def test_scores_far_above_all_before_are_computed_exactly(rng: np.random.Generator) -> None:
    """The fast kernel underflows (its output is NaN) and the micro-batch is computed again."""
    spec = replace(SPECS["mixtral"], num_layers=2)
    sharp = altered_model(spec, lambda w: {"q": w["q"] * 150})
    stage = sharp.stage(limits=SMALL_TILES)
    exact, runs = stage._ops.batch, []
    stage._ops.batch = lambda *a, **k: runs.append(bool(k)) or exact(*a, **k)
    ids = rng.integers(0, 97, 61).astype(np.int32)
    expected, _ = forward(spec, sharp.source, ids)
    got = sharp.prefill([stage], ids, tuple(range(16)), [30, 31])
    assert True in runs, "no score was far enough above: the test does not test"
    np.testing.assert_allclose(got, expected[[29, 60]], atol=2e-3)


def test_equal_experts_are_chosen_by_lowest_id(rng: np.random.Generator) -> None:
    """All router rows equal: every token must choose experts 0 and 1."""
    spec = replace(M0, num_layers=1)
    tied = altered_model(spec, lambda w: {"router": np.tile(w["router"][:1], (8, 1))})
    ids = rng.integers(0, 97, 9).astype(np.int32)
    expected, _ = forward(spec, tied.source, ids)
    got = tied.prefill([tied.stage()], ids, (0, 1, 2), [9])
    np.testing.assert_allclose(got[0], expected[-1], atol=1e-4)


def test_router_selects_in_float32(rng: np.random.Generator) -> None:
    """Router logits 1e-3 apart around 8, which float16 cannot tell: numpy's choice is ours."""
    spec, nudges = replace(M0, num_layers=1), 1 + 2e-4 * np.arange(8, dtype=np.float32)[:, None]
    close = altered_model(spec, lambda w: {"router": 8 * w["router"][:1] * nudges})
    ids = rng.integers(0, 97, 30).astype(np.int32)
    expected, _ = forward(spec, close.source, ids)
    got = close.prefill([close.stage()], ids, tuple(range(8)), [10, 10, 10])
    np.testing.assert_allclose(got, expected[[9, 19, 29]], atol=1e-4)


def test_what_a_stage_hands_over(model: GetModel, rng: np.random.Generator) -> None:
    tiny = model("qwen3_moe")
    first, last = tiny.stage(0, 3), tiny.stage(3, 5)
    batch = tiny.batch(Segment(0, 0, 6, False, (0, 1)))
    hidden = first.run(batch, _tensor(np.arange(6, dtype=np.int32)))
    assert hidden.shape == (6, 32) and str(hidden.dtype) == "Float32"
    assert last.run(batch, hidden) is None


def test_micro_batches_in_flight_keep_their_hidden_states(
    model: GetModel, rng: np.random.Generator
) -> None:
    """What was handed over is not touched by later calls, nor is the payload by the next stage."""
    tiny = model("qwen3_moe")
    first, last = tiny.stage(0, 2), tiny.stage(2, 5)
    flying = []
    for r, length in enumerate((9, 5, 9, 9)):
        blocks = tuple(range(4 * r, 4 * r + 3))
        batch = tiny.batch(Segment(r, 0, length, True, blocks))
        ids = rng.integers(0, 97, length).astype(np.int32)
        hidden = first.run(batch, ids)
        flying.append((batch, hidden, hidden.asnumpy().copy()))
    alone = [last.run(batch, _tensor(copy)) for batch, _, copy in flying]
    for (batch, hidden, copy), expected in zip(flying, alone, strict=True):
        assert np.array_equal(last.run(batch, hidden), expected)
        assert np.array_equal(hidden.asnumpy(), copy)


@pytest.mark.parametrize("token", [-1, 97])
def test_a_token_id_out_of_range_is_refused(model: GetModel, token: int) -> None:
    tiny = model("qwen3_moe")
    batch = tiny.batch(Segment(0, 0, 2, True, (0,)))
    with pytest.raises(RequestError, match=f"token id: {token}; allowed: 0 to 96"):
        tiny.stage().run(batch, np.array([1, token], np.int32))


def test_a_position_past_the_models_range_is_refused(model: GetModel) -> None:
    tiny = model("qwen3_moe")
    batch = tiny.batch(Segment(0, 127, 2, True, tuple(range(33))))
    with pytest.raises(RequestError, match="position: 128"):
        tiny.stage().run(batch, np.array([1, 2], np.int32))


def test_warm_up_leaves_nothing_to_compile(model: GetModel, rng: np.random.Generator) -> None:
    """After it no graph is built: every shape is served by what is there."""
    tiny = model("mixed")
    stage = tiny.stage(limits=SMALL_TILES)
    stage.warm_up()
    compiled = _compiled_graphs()
    ids = rng.integers(0, 97, 61).astype(np.int32)
    tiny.prefill([stage], ids, random_table(rng, 61), [1, 7, 30, 1, 22])
    assert _compiled_graphs() == compiled > 0


def _compiled_graphs() -> int:
    from mindspore import nn

    cells = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Cell)]
    return sum(len(cell.compile_cache) for cell in cells)


def _tensor(array: np.ndarray):
    from mindspore import Tensor

    return Tensor(array)
