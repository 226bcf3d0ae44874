"""Chunked prefill with Hugging Face Transformers, for comparison; prints JSON.

    taskset -c 0 python benchmarks/peer_transformers.py MODEL_DIR TOKENS CHUNK_TOKENS

Needs torch and transformers (extra `[goldens]`). Same weights, same chunks, fp32, one thread,
a preallocated-by-growth DynamicCache as the library ships it; only the last row's logits.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from synthetic import prompt_ids
from transformers import AutoModelForCausalLM, DynamicCache


def main() -> None:
    model_dir, num_tokens, chunk_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    ids = torch.tensor([prompt_ids(num_tokens)])
    chunks_s: list[float] = []
    with torch.inference_mode():
        model(ids[:, :chunk_tokens], logits_to_keep=1)
        cache = DynamicCache(config=model.config)
        for start in range(0, num_tokens, chunk_tokens):
            begun_s = time.perf_counter()
            out = model(
                ids[:, start : start + chunk_tokens],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            chunks_s.append(time.perf_counter() - begun_s)
    top = out.logits[0, -1].topk(3)
    print(
        json.dumps(
            {"chunks_s": chunks_s, "top": top.indices.tolist(), "logit": top.values[0].item()}
        )
    )


if __name__ == "__main__":
    main()
