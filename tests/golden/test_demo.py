"""The demo model: the MoE equals the dense model it was made of, here and in Transformers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from vpp_ms.config.model_spec import ModelSpec
from vpp_ms.integrations.prepare_demo import prepare_demo
from vpp_ms.model.checkpoint import CheckpointReader
from vpp_ms.model.stage import Stage
from vpp_ms.model.weights import WeightSource
from vpp_ms.schedule.actions import MicroBatch, Segment

pytestmark = pytest.mark.slow
GOLDEN = load_file(Path(__file__).parent / "demo.safetensors")
BLOCK_SIZE = 16


class Dense:
    """The same checkpoint without its router: every FFN is expert 0."""

    def __init__(self, reader: CheckpointReader) -> None:
        self.spec: ModelSpec = replace(reader.spec, moe=None)
        self._reader = reader
        self.embedding, self.final_norm, self.head = (
            reader.embedding,
            reader.final_norm,
            reader.head,
        )

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        weights = self._reader.layer(layer)
        del weights["router"]
        return {k: w[0] if k in ("gate", "up", "down") else w for k, w in weights.items()}


def answer(spec: ModelSpec, weights: WeightSource) -> tuple[np.ndarray, list[int]]:
    """Logits behind the golden prompt, and the greedy answer up to its end."""
    ids, size = GOLDEN["ids"], len(GOLDEN["ids"]) + len(GOLDEN["greedy"])
    num_blocks = -(-size // BLOCK_SIZE)
    stage = Stage(
        spec,
        stage=0,
        first_layer=0,
        end_layer=spec.num_layers,
        is_first=True,
        is_last=True,
        weights=weights,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
    )

    def run(start: int, tokens: np.ndarray) -> np.ndarray:
        segment = Segment(0, start, len(tokens), True, tuple(range(num_blocks)))
        return stage.run(MicroBatch(0, (segment,), (0.0,)), tokens.astype(np.int32))[0]

    run(0, ids[:20])
    prompt_logits = logits = run(20, ids[20:])
    tokens = [int(logits.argmax())]
    while tokens[-1] not in spec.eos_token_ids and len(tokens) < len(GOLDEN["greedy"]):
        logits = run(len(ids) + len(tokens) - 1, np.array(tokens[-1:]))
        tokens.append(int(logits.argmax()))
    return prompt_logits, tokens


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, cpu: None) -> Iterator[CheckpointReader]:
    directory = tmp_path_factory.mktemp("demo") / "model"
    prepare_demo(directory)
    yield CheckpointReader(directory)
    shutil.rmtree(directory)


def test_upcycled_model_equals_the_dense_one(reader: CheckpointReader) -> None:
    bound = 1e-4 * float(np.abs(GOLDEN["logits"]).max())
    moe, moe_tokens = answer(reader.spec, reader)
    np.testing.assert_allclose(moe, GOLDEN["logits"], rtol=0, atol=bound)
    assert moe_tokens == GOLDEN["greedy"].tolist()
    dense = Dense(reader)
    dense_logits, dense_tokens = answer(dense.spec, dense)
    np.testing.assert_allclose(moe, dense_logits, rtol=0, atol=bound)
    assert dense_tokens == moe_tokens
