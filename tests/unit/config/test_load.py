"""Every mistake in a configuration is one line: where, got, allowed, what to try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vpp_ms.config import RunConfig, load_config
from vpp_ms.config.keys import all_keys
from vpp_ms.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
MODEL = "pretrained_model_dir: model\n"

Load = Callable[..., RunConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load(text, *overrides, methods=()) of a file that names a model directory."""

    def load_text(text: str, *overrides: str, methods: tuple[str, ...] = ()) -> RunConfig:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, overrides, methods)

    return load_text


def refuse(load: Load, text: str, *overrides: str, **kwargs: tuple[str, ...]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, *overrides, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", sorted(ROOT.glob("yaml_configs/*.yaml")), ids=lambda p: p.name)
def test_every_example_loads(path: Path) -> None:
    config = load_config(path)
    assert config.parallel_config.pipeline_stage >= 1
    if config.input.prompts is not None:
        assert (ROOT / config.input.prompts).is_file(), config.input.prompts


def test_the_examples_are_there() -> None:
    names = {path.stem for path in ROOT.glob("yaml_configs/*.yaml")}
    assert names >= {"quickstart", "cpp", "dcpp", "vpp", "loop"}


def test_defaults(load: Load) -> None:
    config = load(MODEL)
    assert config.pretrained_model_dir == Path("model")
    assert config.vpp.method == "vpp"
    assert config.vpp.placement is None and "placement" not in config.vpp.model_fields_set
    assert config.context.mode == 0


def test_given_keys_are_known_as_given(load: Load) -> None:
    config = load(MODEL + "vpp: {placement: loop}\n", "vpp.virtual_stages=4")
    assert {"placement", "virtual_stages"} <= config.vpp.model_fields_set


def test_config_is_frozen(load: Load) -> None:
    config = load(MODEL)
    with pytest.raises(ValueError, match="frozen"):
        config.vpp.method = "cpp"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "place", "advice"),
    [
        (MODEL + "chunk_sise: 4", ":2: chunk_sise", "chunking.chunk_tokens"),
        (MODEL + "chunking:\n  chunk_sise: 4", ":3: chunking.chunk_sise", "chunking.chunk_tokens"),
        (MODEL + "vpp:\n  window:\n    micro_batch: 4", ":4: vpp.window.micro_batch",
         "vpp.window.micro_batches"),
        ("pretrained_model_dri: m\npretrained_model_dir: m", ":1: pretrained_model_dri",
         "pretrained_model_dir"),
        (MODEL + "kv: {blok_size: 4}", ":2: kv.blok_size", "kv.block_size"),
        (MODEL + "block_size: 4", ":2: block_size", "kv.block_size"),
        (MODEL + "context: {placement: v}", ":2: context.placement", "vpp.placement"),
        (MODEL + "use_parallel: True", ":2: use_parallel", "vpp-ms run"),
        (MODEL + "trainer: {type: x}", ":2: trainer", "does not train"),
        (MODEL + "load_checkpoint: x", ":2: load_checkpoint", "pretrained_model_dir"),
        (MODEL + "parallel_config: {data_parallel: 2}", ":2: parallel_config.data_parallel",
         "one run per replica"),
        (MODEL + "model:\n  model_config:\n    seq_length: 3", ":3: model.model_config",
         "right under model"),
        (MODEL + "context: {max_device_memory: 59GB}", ":2: context.max_device_memory",
         "kv.memory_bytes"),
    ],
)  # fmt: skip
def test_unknown_key(load: Load, text: str, place: str, advice: str) -> None:
    message = refuse(load, text)
    assert f"run.yaml{place}: unknown key" in message
    assert advice in message.split("try: ")[1]


def test_unknown_key_without_a_near_one_lists_the_keys(load: Load) -> None:
    message = refuse(load, MODEL + "kv: {zzzzz: 4}")
    assert "allowed: block_size, num_blocks, memory_bytes" in message
    assert "try:" not in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: [1\nb: 2", ("run.yaml:2:", "not YAML")),
        ("a: b: c", ("run.yaml:1:", "not YAML")),
        ("", ("run.yaml: nothing",)),
        ("- 1", ("run.yaml: [1]", "keys and values")),
        ("vpp: {}", ("pretrained_model_dir: missing",)),
        (MODEL + MODEL, ("run.yaml:2: pretrained_model_dir", "given twice", "lines 1 and 2")),
        (MODEL + "vpp:\n  order: best\n  order: best", (":4: vpp.order", "given twice")),
        (MODEL + "? [a, b]\n: 1", (":2", "not a word")),
        (MODEL + "vpp: 5", (":2: vpp: 5", "a section with method, placement")),
        (MODEL + "parallel_config:\n  pipeline_stage: true", (":3:", "true", "a whole number")),
        (MODEL + "parallel_config:\n  pipeline_stage: '2'", (":3:", "'2'", "a whole number")),
        (MODEL + "parallel_config:\n  pipeline_stage: 0", (":3:", "0", "at least 1")),
        (MODEL + "parallel_config:\n  pipeline_stage: 2.5", (":3:", "2.5", "a whole number")),
        (MODEL + "context:\n  mode: 1", (":3: context.mode: 1", "allowed: 0")),
        (MODEL + "vpp:\n  placement: zigzag", (":3:", "'zigzag'", "'plain', 'loop' or 'v'")),
        (MODEL + "vpp:\n  layer_split: [1, x]", (":3: vpp.layer_split", "layers per stage")),
        (MODEL + "launch:\n  timeout_s: 0", (":3:", "above 0")),
        (MODEL + "launch:\n  master_port: 99999", (":3:", "at most 65535")),
        (MODEL + "input:\n  top_p: 1.5", (":3:", "at most 1")),
        (MODEL + "output:\n  logits: yes please", (":3:", "true or false")),
        (MODEL + "seed: 2026-01-01", (":2: seed", "2026-01-01", "a whole number")),
    ],
)
def test_bad_value(load: Load, text: str, parts: tuple[str, ...]) -> None:
    message = refuse(load, text)
    for part in parts:
        assert part in message


def test_several_errors_name_the_first_and_count_the_rest(load: Load) -> None:
    message = refuse(load, MODEL + "vpp: {order: x}\nkv: {block_size: 0, num_block: 3}")
    assert "vpp.order: 'x' (and 2 more)" in message


def test_an_empty_section_is_the_default(load: Load) -> None:
    assert load(MODEL + "vpp:\nkv:\n").vpp == load(MODEL).vpp


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("vpp.virtual_stages=4", "vpp.virtual_stages", 4),
        ("vpp.layer_split=[3, 2]", "vpp.layer_split", (3, 2)),
        ("vpp.layer_split=[[0, 3], [3, 5]]", "vpp.layer_split", ((0, 3), (3, 5))),
        ("vpp.window={micro_batches: 3}", "vpp.window.micro_batches", 3),
        ("launch.timeout_s=1e3", "launch.timeout_s", 1000.0),
        ("chunking.latency=[1e-6, 0.01, 1]", "chunking.latency", (1e-6, 0.01, 1.0)),
        ("output.logits=true", "output.logits", True),
        ("input.question=null", "input.question", None),
        ("input.question=what = it?", "input.question", "what = it?"),
        ("output_dir=a/b", "output_dir", Path("a/b")),
    ],
)
def test_override(load: Load, override: str, key: str, value: object) -> None:
    config = load(MODEL, "vpp.method=auto", "input.prompts=x.txt", override)
    found: object = config
    for name in key.split("."):
        found = getattr(found, name)
    assert found == value


def test_overrides_win_over_the_file_and_the_last_wins(load: Load) -> None:
    text = MODEL + "kv: {block_size: 8, num_blocks: 4}"
    config = load(text, "kv.block_size=16", "kv.block_size=32")
    assert (config.kv.block_size, config.kv.num_blocks) == (32, 4)


def test_a_section_override_and_a_key_below_it(load: Load) -> None:
    config = load(MODEL, "vpp={placement: v, virtual_stages: 2}", "vpp.virtual_stages=4")
    assert (config.vpp.placement, config.vpp.virtual_stages) == ("v", 4)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("vpp.virtual_stagse=4", ("--set vpp.virtual_stagse: unknown key", "vpp.virtual_stages")),
        ("virtual_stages=4", ("--set virtual_stages: unknown key", "try: vpp.virtual_stages")),
        ("vpp.virtual_stages.x=4", ("unknown key",)),
        ("vpp.virtual_stages", ("no key=value",)),
        ("=4", ("no key=value",)),
        ("vpp.virtual_stages=four", ("--set vpp.virtual_stages: 'four'", "a whole number")),
        ("vpp.virtual_stages=[", ("--set vpp.virtual_stages:1:2", "not YAML")),
        ("vpp={ordr: best}", ("--set vpp.ordr: unknown key", "vpp.order")),
        ("pretrained_model_dir=", ("--set pretrained_model_dir: nothing", "a path")),
    ],
)
def test_bad_override(load: Load, override: str, parts: tuple[str, ...]) -> None:
    message = refuse(load, MODEL, override)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("vpp.placement=plain", "vpp.virtual_stages=2"), ("vpp.virtual_stages", "plain")),
        (("vpp.method=cpp", "vpp.virtual_stages=2"), ("vpp.virtual_stages", "method cpp")),
        (("chunking.method=fixed", "chunking.preset=atom"), ("chunking.preset", "dynamic")),
        (("chunking.method=tail", "chunking.smoothing=0.5"), ("chunking.smoothing", "tail")),
        (("vpp.method=cpp", "chunking.latency=[1, 1, 1]"), ("chunking.latency", "dynamic")),
        (("chunking.chunk_tokens=16", "chunking.alignment=64"), ("chunking.alignment: 64", "16")),
        (("vpp.method=dcpp", "chunking.min_chunk_tokens=1024"), ("min_chunk_tokens", "512")),
        (("kv.num_blocks=4", "kv.memory_bytes=4096"), ("kv.memory_bytes", "kv.num_blocks")),
        (("input.question=why?",), ("input.question", "input.prompts")),
        (("input.question=why?", "input.prompts=a.jsonl"), ("input.question", "messages")),
        (("parallel_config.model_parallel=2",), ("model_parallel: 2", "allowed: 1")),
        (("parallel_config.expert_parallel=2",), ("expert_parallel: 2", "allowed: 1")),
        (("model.compute_dtype=bfloat16",), ("model.compute_dtype", "bfloat16", "float32")),
    ],
)
def test_keys_that_contradict_one_another(
    load: Load, overrides: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    message = refuse(load, MODEL, *overrides)
    for part in parts:
        assert part in message


def test_a_comparison_may_hold_keys_of_any_of_its_methods(load: Load) -> None:
    overrides = ("chunking.preset=atom", "vpp.virtual_stages=4")
    load(MODEL, *overrides, methods=("cpp", "dcpp", "vpp"))
    assert "chunking.preset" in refuse(load, MODEL, *overrides, methods=("cpp", "vpp"))


@pytest.mark.parametrize("key", ["output_dir", "launch.log_dir"])
def test_a_directory_must_not_be_a_file(load: Load, tmp_path: Path, key: str) -> None:
    (tmp_path / "file").write_text("")
    for below in ("file", "file/below"):
        assert "not a directory" in refuse(load, MODEL, f"{key}={tmp_path / below}")
    load(MODEL, f"{key}={tmp_path / 'new'}")


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, part in (("gone", "no such file"), (".", "directory"), ("binary", "UTF-8")):
        with pytest.raises(ConfigError, match=part):
            load_config(tmp_path / name)


def test_all_keys_lists_sections_and_leaves() -> None:
    keys = all_keys()
    assert {"seed", "vpp", "vpp.window.micro_batches", "launch.timeout_s"} <= set(keys)
    assert len(keys) == len(set(keys))
