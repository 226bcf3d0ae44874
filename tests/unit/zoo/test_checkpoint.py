"""CheckpointReader: names, shapes, types and files; what is wrong is named before data is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from vpp_ms.errors import CheckpointError
from vpp_ms.model.checkpoint import INDEX_FILE, CheckpointReader
from vpp_ms.model.tensor_file import TensorFile
from vpp_ms.model.weights import layer_shapes

DATA_DIR = Path(__file__).parents[2] / "golden/data"
CASES = sorted(path.name for path in DATA_DIR.iterdir())
SINGLE, SHARDED = "mixtral_tied", "mixtral_llama3"


def copy(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA_DIR / name, tmp_path / name))


def check(directory: Path) -> None:
    reader = CheckpointReader(directory)
    reader.check(range(reader.spec.num_layers), with_embedding=True, with_head=True)


def change(directory: Path, changes: dict[str, np.ndarray | None]) -> None:
    """Rewrite model.safetensors with some tensors replaced, added or (None) taken out."""
    path = directory / "model.safetensors"
    tensors = load_file(path) | changes
    save_file({name: t for name, t in tensors.items() if t is not None}, path)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_has_the_canonical_keys_and_shapes(name: str) -> None:
    check(DATA_DIR / name)
    reader = CheckpointReader(DATA_DIR / name)
    spec = reader.spec
    for layer in range(spec.num_layers):
        weights = reader.layer(layer)
        assert {key: w.shape for key, w in weights.items()} == layer_shapes(spec, layer)
        assert all(w.dtype == np.float32 and w.flags.c_contiguous for w in weights.values())
    assert reader.embedding().shape == reader.head().shape == (spec.vocab_size, spec.hidden_size)
    assert np.array_equal(reader.embedding(), reader.head()) == spec.tied_embeddings
    assert reader.final_norm().shape == (spec.hidden_size,)


def test_experts_land_in_their_rows() -> None:
    raw = load_file(DATA_DIR / SINGLE / "model.safetensors")
    weights = CheckpointReader(DATA_DIR / SINGLE).layer(1)
    for expert in range(4):
        name = f"model.layers.1.block_sparse_moe.experts.{expert}.w"
        for key, number in {"gate": 1, "up": 3, "down": 2}.items():
            assert np.array_equal(weights[key][expert], raw[f"{name}{number}.weight"])


def test_fused_experts_are_gate_above_up() -> None:
    raw = load_file(DATA_DIR / "mixtral_fused/model.safetensors")
    weights = CheckpointReader(DATA_DIR / "mixtral_fused").layer(2)
    fused = np.concatenate([weights["gate"], weights["up"]], axis=1)
    assert np.array_equal(fused, raw["model.layers.2.mlp.experts.gate_up_proj"])
    assert np.array_equal(weights["down"], raw["model.layers.2.mlp.experts.down_proj"])


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50))
def test_bfloat16_is_the_upper_half_of_float32(tmp_path_factory, bits: list[int]) -> None:
    path = tmp_path_factory.getbasetemp() / "bf16.safetensors"
    raw = np.array(bits, "<u2")
    header = {"w": {"dtype": "BF16", "shape": [len(bits)], "data_offsets": [0, raw.nbytes]}}
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + raw.tobytes())
    out = np.empty(len(bits), np.float32)
    TensorFile(path).read_into("w", out)
    assert np.array_equal(out.view(np.uint32), np.array(bits, np.uint32) << 16)


def test_float16_is_widened_exactly() -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    raw = load_file(DATA_DIR / "qwen3_moe_t4/model.safetensors")[name]
    assert raw.dtype == np.float16
    assert np.array_equal(CheckpointReader(DATA_DIR / "qwen3_moe_t4").layer(0)["q"], raw)


def test_only_the_files_of_the_layers_are_opened(tmp_path: Path) -> None:
    directory = copy(SHARDED, tmp_path)
    weight_map = json.loads((directory / INDEX_FILE).read_text())["weight_map"]
    of_first = {f for name, f in weight_map.items() if name.startswith("model.layers.0.")}
    for path in directory.glob("*.safetensors"):
        if path.name not in of_first:
            path.unlink()
    reader = CheckpointReader(directory)
    reader.check([0], with_embedding=False, with_head=False)
    assert reader.layer(0)["q"].shape == (32, 32)
    with pytest.raises(CheckpointError, match="no such file"):
        reader.check([4], with_embedding=False, with_head=False)


Q = "model.layers.1.self_attn.q_proj.weight"
EXPERT = "model.layers.2.block_sparse_moe.experts.3.w2.weight"
SOME = np.zeros((3, 3), np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({Q: None}, ["missing", Q]),
        ({EXPERT: None}, ["missing", EXPERT]),
        ({"model.norm.weight": None}, ["missing", "model.norm.weight"]),
        ({Q: SOME}, [Q, "[3, 3]", "[32, 32]"]),
        ({EXPERT: SOME}, [EXPERT, "[3, 3]", "[32, 24]"]),
        ({"model.layers.3.input_layernorm.weight": SOME}, ["unexpected", "layers.3", "3 mixtral"]),
        ({"model.layers.0.self_attn.q_proj.bias": SOME}, ["unexpected", "q_proj.bias"]),
        (
            {"model.layers.2.block_sparse_moe.experts.4.w1.weight": SOME},
            ["unexpected", "experts.4.w1"],
        ),
    ],
)
def test_wrong_weights_are_refused_by_name(
    tmp_path: Path, changes: dict[str, np.ndarray | None], words: list[str]
) -> None:
    directory = copy(SINGLE, tmp_path)
    change(directory, changes)
    with pytest.raises(CheckpointError) as caught:
        check(directory)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_untied_head_must_be_there_and_a_tied_one_is_ignored(tmp_path: Path) -> None:
    directory = copy(SINGLE, tmp_path)
    change(directory, {"lm_head.weight": SOME, "model.layers.0.rotary_emb.inv_freq": SOME})
    check(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: shape \[3, 3\]"):
        check(directory)
    change(directory, {"lm_head.weight": None})
    with pytest.raises(CheckpointError, match=r"missing: lm_head\.weight"):
        check(directory)


@pytest.mark.parametrize("keep_bytes", [0, 4, 8, 100, 5000, -1])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, keep_bytes: int) -> None:
    directory = copy(SINGLE, tmp_path)
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep_bytes])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a whole") as caught:
        check(directory)
    assert "\n" not in str(caught.value)


def test_a_git_lfs_pointer_is_no_checkpoint(tmp_path: Path) -> None:
    directory = copy(SINGLE, tmp_path)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (directory / "model.safetensors").write_text(pointer)
    with pytest.raises(CheckpointError, match="Git LFS"):
        check(directory)


def test_a_type_that_is_not_a_float_is_refused(tmp_path: Path) -> None:
    directory = copy(SINGLE, tmp_path)
    change(directory, {Q: np.zeros((32, 32), np.int8)})
    with pytest.raises(
        CheckpointError, match=r"q_proj\.weight: I8; allowed: one of F32, F16, BF16"
    ):
        check(directory)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("{", ["not JSON"]),
        ("{}", ["weight_map"]),
        ('{"weight_map": {"a": "../b.safetensors"}}', ["'../b.safetensors'", "file name"]),
        ('{"weight_map": {"a": 1}}', ["a: 1"]),
    ],
)
def test_a_bad_index_is_refused(tmp_path: Path, index: str, words: list[str]) -> None:
    directory = copy(SHARDED, tmp_path)
    (directory / INDEX_FILE).write_text(index)
    with pytest.raises(CheckpointError) as caught:
        check(directory)
    assert INDEX_FILE in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_index_that_names_the_wrong_file_is_refused(tmp_path: Path) -> None:
    directory = copy(SHARDED, tmp_path)
    index = json.loads((directory / INDEX_FILE).read_text())
    other = sorted(set(index["weight_map"].values()) - {index["weight_map"][Q]})[0]
    index["weight_map"][Q] = other
    (directory / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=f"{other}: {Q} is not in it"):
        check(directory)


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    directory = copy(SINGLE, tmp_path)
    (directory / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        check(directory)
