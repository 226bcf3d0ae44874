"""Write tests/golden/demo.safetensors: what Transformers' dense Llama says with the demo's weights.

    python scripts/make_demo_golden.py DEMO_DIR      (made by `vpp-ms prepare-demo`)

The dense model takes its FFN from expert 0. `ids` int32 [T] is a chat prompt, `logits` float32
[V] its last position, `greedy` int32 the answer. Needs 'vpp-ms[goldens]'.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

TARGET = Path(__file__).parent.parent / "tests/golden/demo.safetensors"
QUESTION = "What is the capital of France?"
DENSE = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
SHARED_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "tie_word_embeddings",
    "eos_token_id",
)


def checkpoint_name(name: str) -> str:
    """A Llama weight's name in the Mixtral checkpoint."""
    prefix, _, rest = name.partition(".mlp.")
    if not rest:
        return name
    return f"{prefix}.block_sparse_moe.experts.0.{DENSE[rest.removesuffix('.weight')]}.weight"


def dense_model(directory: Path) -> LlamaForCausalLM:
    config = json.loads((directory / "config.json").read_text())
    model = LlamaForCausalLM(LlamaConfig(**{key: config[key] for key in SHARED_KEYS}))
    files = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    weights = {}
    for name in model.state_dict():
        source = checkpoint_name(name)
        if source in files:
            with safe_open(directory / files[source], "pt") as file:
                weights[name] = file.get_tensor(source).float()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model.eval()


@torch.no_grad()
def main(directory: Path) -> None:
    model, tokenizer = dense_model(directory), AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "user", "content": QUESTION}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    ids = inputs["input_ids"]
    answer = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :]
    print(tokenizer.decode(answer))
    tensors = {
        "ids": ids[0].to(torch.int32),
        "logits": model(ids).logits[0, -1].clone(),
        "greedy": answer.to(torch.int32),
    }
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    save_file(tensors, TARGET, {"made_with": json.dumps(made_with)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
