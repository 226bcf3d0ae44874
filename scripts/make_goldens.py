"""Write the tiny checkpoints of tests/golden/data and what Transformers computes from them.

    pip install 'vpp-ms[goldens]' && python scripts/make_goldens.py [CASE ...]

Each directory is a Hugging Face model with random weights and `goldens.safetensors`: for each
prompt length n `ids_n` int32 [n], `logits_n` float32 [V] at the last position and `greedy_n`
int32 [8], the tokens that follow. The logits come from the directory read back, so that the
files, not the script, are what is compared. The versions used are in the file's metadata.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen3MoeConfig

DATA_DIR = Path(__file__).parent.parent / "tests/golden/data"
VOCAB_SIZE = 97
LENGTHS = (1, 7, 33, 61, 100)
NEW_TOKENS = 8
MIN_GAP = 2e-5  # between the last chosen and the first left expert's probability, and of logits
QWEN3 = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 128,
    "eos_token_id": 1,
}
MIXTRAL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": [1, 0],
}


@dataclass(frozen=True)
class Case:
    """`config` overrides the family's base; `save` goes to save_pretrained."""

    config: dict[str, Any]
    seed: int
    lengths: tuple[int, ...] = LENGTHS
    dtype: torch.dtype = torch.float32
    save: dict[str, Any] = field(default_factory=dict)
    after: Callable[[Path], None] | None = None


def qwen3(**changes: Any) -> dict[str, Any]:
    return {**QWEN3, **changes, "model_type": "qwen3_moe"}


def mixtral(**changes: Any) -> dict[str, Any]:
    return {**MIXTRAL, **changes, "model_type": "mixtral"}


def transformers_4_spelling(directory: Path) -> None:
    """Rewrite config.json as Transformers 4 spelled it."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope["type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config.pop("head_dim", None)
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    config["transformers_version"] = "4.51.0"
    path.write_text(json.dumps(config, indent=2) + "\n")


def add_tokenizer(directory: Path) -> None:
    """One token per printable character ('~' gives way to the line feed), and two marks."""
    characters = ["\n", *(chr(c) for c in range(32, 126))]
    vocab = {token: i for i, token in enumerate(["<|im_start|>", "<|im_end|>", *characters])}
    assert len(vocab) == VOCAB_SIZE
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in list(vocab)[:2]])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"))
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    settings = {"eos_token": "<|im_end|>", "chat_template": template}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 50000.0, "factor": 2.0}
AROUND_64 = (1, 7, 61, 63, 64, 65, 200)

CASES: dict[str, Case] = {
    "qwen3_moe_m0": Case(qwen3(num_hidden_layers=5), 1, after=add_tokenizer),
    "qwen3_moe_dense_yarn": Case(
        qwen3(
            num_hidden_layers=5,
            head_dim=16,
            num_experts=16,
            num_experts_per_tok=4,
            norm_topk_prob=False,
            tie_word_embeddings=True,
            mlp_only_layers=[1],
            max_position_embeddings=256,
            rope_parameters=YARN,
        ),
        2,
        lengths=AROUND_64,
        dtype=torch.bfloat16,
        save={"max_shard_size": "100KB"},
    ),
    "qwen3_moe_t4": Case(
        qwen3(
            num_experts=4,
            num_experts_per_tok=1,
            norm_topk_prob=False,
            num_key_value_heads=1,
            decoder_sparse_step=2,
        ),
        3,
        dtype=torch.float16,
        after=transformers_4_spelling,
    ),
    "mixtral_tied": Case(mixtral(tie_word_embeddings=True), 4),
    "mixtral_llama3": Case(
        mixtral(
            num_hidden_layers=5,
            num_local_experts=8,
            num_experts_per_tok=4,
            max_position_embeddings=256,
            rope_parameters=LLAMA3,
        ),
        5,
        lengths=AROUND_64,
        dtype=torch.bfloat16,
        save={"max_shard_size": "100KB"},
    ),
    "mixtral_t4_linear": Case(
        mixtral(num_experts_per_tok=1, num_key_value_heads=4, rope_parameters=LINEAR),
        6,
        after=transformers_4_spelling,
    ),
    "mixtral_window": Case(mixtral(sliding_window=16), 8, dtype=torch.bfloat16),
    "mixtral_fused": Case(
        mixtral(hidden_size=64, head_dim=8), 7, save={"save_original_format": False}
    ),
}


def random_model(case: Case) -> torch.nn.Module:
    """Weights large enough that attention and routing decide something."""
    kind = {"qwen3_moe": Qwen3MoeConfig, "mixtral": MixtralConfig}[case.config["model_type"]]
    changes = {k: v for k, v in case.config.items() if k != "model_type"}
    model = AutoModelForCausalLM.from_config(kind(**changes))
    generator = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                weight.copy_(1 + 0.2 * noise)
            else:
                weight.copy_(noise if "embed" in name else 1.5 * noise * weight.shape[-1] ** -0.5)
    return model.to(case.dtype)


def router_gap(model: torch.nn.Module, ids: torch.Tensor) -> float:
    """The closest call of any router on the prompt: below float noise it would be a coin toss."""
    gaps = [1.0]
    top_k = model.config.num_experts_per_tok
    for logits in model(ids, output_router_logits=True).router_logits:
        ordered = logits.softmax(-1).sort(-1, descending=True).values
        if ordered.shape[-1] > top_k:
            gaps.append(float((ordered[:, top_k - 1] - ordered[:, top_k]).min()))
    return min(gaps)


def goldens(directory: Path, case: Case) -> dict[str, torch.Tensor]:
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(1000 + case.seed)
    out: dict[str, torch.Tensor] = {}
    for length in case.lengths:
        while True:  # until no router tosses a coin
            ids = torch.randint(2, VOCAB_SIZE, (1, length), generator=generator)
            rows, grown = [], ids
            for _ in range(NEW_TOKENS):
                rows.append(model(grown).logits[0, -1])
                grown = torch.cat([grown, rows[-1].argmax().view(1, 1)], 1)
            best = torch.stack(rows).topk(2).values
            gap = min(float((best[:, 0] - best[:, 1]).min()), router_gap(model, grown))
            if gap > MIN_GAP:
                break
        out[f"ids_{length}"] = ids[0].to(torch.int32)
        out[f"logits_{length}"] = rows[0].clone()
        out[f"greedy_{length}"] = grown[0, length:].to(torch.int32)
    return out


@torch.no_grad()
def write(name: str, case: Case) -> None:
    directory = DATA_DIR / name
    shutil.rmtree(directory, ignore_errors=True)
    random_model(case).save_pretrained(directory, **case.save)
    if case.after is not None:
        case.after(directory)
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    made_with["seed"] = str(case.seed)
    metadata = {"made_with": json.dumps(made_with)}  # one entry: their order is random on disk
    save_file(goldens(directory, case), directory / "goldens.safetensors", metadata)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or CASES:
        write(name, CASES[name])


if __name__ == "__main__":
    main(sys.argv[1:])
