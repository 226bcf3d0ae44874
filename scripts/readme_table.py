"""Writes the README's measured section from benchmarks/results/:  python scripts/readme_table.py

Numbers come from benchmarks/prefill_cpu.py alone. A test fails when README and file disagree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks/results/prefill_cpu.json"
BEGIN = "<!-- measured: begin (written by scripts/readme_table.py) -->"
END = "<!-- measured: end -->"
MIB = 2**20

SPANS = {"whole": "whole prompt", "from_8k": "from 8K on", "first_chunk": "first chunk"}


def render() -> str:
    """The README with its measured section replaced."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


def section() -> str:
    if not RESULTS.exists():
        return "Not measured yet."
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts = (("peer", _peer), ("ranks", _ranks), ("methods", _methods), ("memory", _memory))
    lines = [
        "Written by `benchmarks/prefill_cpu.py`: a synthetic Qwen3-MoE, fp32, one pinned thread a",
        "rank, interleaved rounds, medians. Raw figures:",
        "[prefill_cpu.json](benchmarks/results/prefill_cpu.json).",
    ]
    for name, show in parts:
        if name in result:
            lines += [
                "",
                *show(result[name]),
                "",
                f"<sub>{_setting(result[name]['setting'], name)}</sub>",
            ]
    return "\n".join(lines)


def _setting(setting: dict[str, Any], part: str) -> str:
    tokens = "" if part in ("methods", "memory") else f"{setting['tokens']} tokens in "
    return (
        f"{tokens}{setting['chunk_tokens']}-token chunks, "
        f"{setting['rounds']} rounds; {setting['machine']}; commit {setting['commit']}"
    )


def _peer(part: dict[str, Any]) -> Iterator[str]:
    yield "**One rank against Hugging Face Transformers**, same weights, same chunks, one core:"
    yield ""
    yield "| span | vpp_ms GFLOP/s | Transformers GFLOP/s | ratio | share of the core's GEMM rate |"
    yield "|---|---|---|---|---|"
    for name, span in part["spans"].items():
        yield (
            f"| {SPANS[name]} | {span['ours_gflops']:.1f} | {span['peer_gflops']:.1f} | "
            f"{span['ours_over_peer']:.2f}x | {span['share_of_gemm_rate']:.0%} |"
        )


def _ranks(part: dict[str, Any]) -> Iterator[str]:
    rates = part["tokens_per_s"]
    yield (
        f"**Two ranks against one**: {rates['ranks_2']:.0f} against {rates['ranks_1']:.0f} "
        f"tokens/s, {part['speedup']:.2f}x; bubble on two ranks {part['bubble_ratio']:.1%}, "
        f"handing messages over {part['wait_send_over_busy']:.2%} of busy time."
    )


def _methods(part: dict[str, Any]) -> Iterator[str]:
    yield (
        "**Methods on two ranks**, 8 layers. Costs are calibrated right before, on 8192 "
        "tokens; they order every method's actions, size dynamic chunks and choose for `auto`:"
    )
    yield ""
    yield "| prompt | method | layout | chunks | tokens/s | bubble | tokens/s over cpp |"
    yield "|---|---|---|---|---|---|---|"
    for tokens, methods in part["lengths"].items():
        for name, entry in methods.items():
            median = entry["median"]
            yield (
                f"| {tokens} | `{name}` | {entry['placement']} x{entry['virtual_stages']} | "
                f"{len(entry['chunks'])} | {median['tokens_per_s']:.0f} | "
                f"{median['bubble_ratio']:.1%} | {entry['ratio_to_first']:.3f} |"
            )


def _memory(part: dict[str, Any]) -> Iterator[str]:
    peaks = part["peak_rss_bytes"]
    yield "**Peak memory** of the dearest of two ranks:"
    yield ""
    yield "| prompt tokens | " + " | ".join(peaks) + " |"
    yield "|---|" + "---|" * len(peaks)
    yield "| MiB | " + " | ".join(f"{peak / MIB:.0f}" for peak in peaks.values()) + " |"


if __name__ == "__main__":
    README.write_text(render(), encoding="utf-8")
    print(f"wrote the measured section of {README}")
