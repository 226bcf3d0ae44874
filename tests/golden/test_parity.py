"""Logits and greedy tokens of every golden checkpoint against what Transformers computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from vpp_ms.model.checkpoint import CheckpointReader
from vpp_ms.model.stage import Stage
from vpp_ms.schedule.actions import MicroBatch, Segment

DATA_DIR = Path(__file__).parent / "data"
CASES = sorted(path.name for path in DATA_DIR.iterdir())
BLOCK_SIZE, NUM_BLOCKS = 4, 60
TOLERANCE = 1e-4  # absolute, or relative to the largest logit


class Model:
    """The whole model as one stage, and its goldens."""

    def __init__(self, name: str) -> None:
        reader = CheckpointReader(DATA_DIR / name)
        spec = reader.spec
        reader.check(range(spec.num_layers), with_embedding=True, with_head=True)
        self.stage = Stage(
            spec,
            stage=0,
            first_layer=0,
            end_layer=spec.num_layers,
            is_first=True,
            is_last=True,
            weights=reader,
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
        )
        self.goldens = load_file(DATA_DIR / name / "goldens.safetensors")
        self.lengths = sorted(int(key[4:]) for key in self.goldens if key.startswith("ids_"))

    def run(self, ids: np.ndarray, start: int, sample: bool) -> np.ndarray | None:
        """One segment, on blocks in an order of their own."""
        needed = -(-(start + len(ids)) // BLOCK_SIZE)
        blocks = tuple((7 * i + 3) % NUM_BLOCKS for i in range(needed))
        segment = Segment(0, start, len(ids), sample, blocks)
        return self.stage.run(MicroBatch(0, (segment,), (0.0,)), ids.astype(np.int32))

    def prefill(self, ids: np.ndarray, chunks: Sequence[int]) -> np.ndarray:
        """Logits [V] behind the prompt, prefilled in `chunks`."""
        assert sum(chunks) == len(ids)
        start, logits = 0, None
        for length in chunks:
            end = start + length
            logits = self.run(ids[start:end], start, sample=end == len(ids))
            start = end
        assert logits is not None and logits.shape == (1, 97)
        return logits[0]


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest, cpu: None) -> Model:
    return Model(request.param)


def fixed(length: int, size: int) -> list[int]:
    """Chunks of `size` and a remainder."""
    return [min(size, length - start) for start in range(0, length, size)]


@pytest.mark.parametrize("chunk_tokens", [None, 16])
def test_logits_equal_transformers(model: Model, chunk_tokens: int | None) -> None:
    for length in model.lengths:
        expected = model.goldens[f"logits_{length}"]
        got = model.prefill(model.goldens[f"ids_{length}"], fixed(length, chunk_tokens or length))
        bound = TOLERANCE * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(got, expected, rtol=0, atol=bound, err_msg=f"{length} tokens")


def test_greedy_tokens_equal_transformers(model: Model) -> None:
    for length in (7, model.lengths[-1]):
        logits = model.prefill(model.goldens[f"ids_{length}"], fixed(length, 29))
        tokens = [int(logits.argmax())]
        while len(tokens) < len(model.goldens[f"greedy_{length}"]):
            logits = model.run(np.array(tokens[-1:]), length + len(tokens) - 1, sample=True)
            tokens.append(int(logits[0].argmax()))
        assert tokens == model.goldens[f"greedy_{length}"].tolist(), f"{length} tokens"
