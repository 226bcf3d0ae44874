"""Prefill on pinned CPU cores, side by side in interleaved rounds; writes one JSON file.

    python benchmarks/prefill_cpu.py --peer-python PYTHON_WITH_TORCH_AND_TRANSFORMERS

(a) one rank against Hugging Face Transformers on the same weights and chunks, and against the
core's GEMM rate; (b) two ranks against one; (c) the methods against each other on two ranks;
(d) peak memory over the prompt length. README quotes the file it writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import typer
from calibration import CALIBRATING, LAYERS, calibrate_from
from machine import where
from synthetic import CONFIG, flops, write_checkpoint, write_prompts

from vpp_ms.config.schema import RunConfig
from vpp_ms.engine.job import compare_job, run_job

HERE = Path(__file__).resolve().parent
PARTS = ("peer", "ranks", "methods", "memory")
CALIBRATED_TOKENS, METHOD_TOKENS = 8192, (4096, 8192)
METHODS: dict[str, dict] = {
    "cpp": {"vpp": {"method": "cpp"}},
    "dcpp_sglang": {"vpp": {"method": "dcpp"}, "chunking": {"preset": "sglang"}},
    "dcpp_vllm_ascend": {"vpp": {"method": "dcpp"}, "chunking": {"preset": "vllm_ascend"}},
    "dcpp_atom": {"vpp": {"method": "dcpp"}, "chunking": {"preset": "atom"}},
    "vpp": {"vpp": {"method": "vpp"}},
    "loop": {"vpp": {"method": "vpp", "placement": "loop", "virtual_stages": 2}},
    "auto": {"vpp": {"method": "auto"}},
}


class Bench:
    """One synthetic model, one prompt length, one chunk size."""

    def __init__(self, work_dir: Path, tokens: int, chunk_tokens: int, rounds: int) -> None:
        self.tokens, self.chunk_tokens, self.rounds = tokens, chunk_tokens, rounds
        self._work_dir = work_dir
        self._model_dir = write_checkpoint(work_dir / "model")
        self._deep_dir = write_checkpoint(work_dir / "deep", num_hidden_layers=LAYERS)

    def config(
        self, ranks: int, tokens: int, model_dir: Path | None = None, **sections: dict
    ) -> RunConfig:
        prompts = write_prompts(self._work_dir / f"prompt_{tokens}.jsonl", [tokens])
        chunking = {"chunk_tokens": self.chunk_tokens} | sections.get("chunking", {})
        return RunConfig.model_validate(
            {
                "pretrained_model_dir": model_dir or self._model_dir,
                "output_dir": self._work_dir / "output",
                "parallel_config": {"pipeline_stage": ranks},
                "input": {"prompts": prompts, "max_new_tokens": 0},
                "vpp": sections.get("vpp", {"method": "cpp"}),
                "chunking": chunking,
            }
        )

    def run(self, ranks: int, tokens: int | None = None, **sections: dict) -> dict:
        return run_job(self.config(ranks, tokens or self.tokens, **sections), _ignore)

    def methods(self) -> dict:
        """(c) all methods on two ranks, one session for each length, ordered and sized by costs
        that are calibrated right before."""
        compare_job(self._variants(CALIBRATING, CALIBRATED_TOKENS), self.rounds, _ignore)
        calibration = calibrate_from(self._work_dir / "output", self._deep_dir)
        costs = (self._work_dir / "costs.json").absolute()
        calibration.costs.save(costs)
        known = {
            name: sections | {"vpp": sections["vpp"] | {"costs": costs}}
            for name, sections in METHODS.items()
        }
        lengths = {
            tokens: compare_job(self._variants(known, tokens), self.rounds, _ignore)["methods"]
            for tokens in METHOD_TOKENS
        }
        figures = {" ".join(name): value for name, value in calibration.figures.items()}
        fitted = {"residual": calibration.residual, "seconds": figures}
        return {"calibration": fitted, "lengths": lengths}

    def _variants(self, sections: Mapping[str, dict], tokens: int) -> dict[str, RunConfig]:
        return {
            name: self.config(2, tokens, self._deep_dir, **section)
            for name, section in sections.items()
        }

    def ranks(self) -> dict:
        """(b) one rank, then two, in turn."""
        rates: dict[int, list[float]] = {1: [], 2: []}
        bubbles, send_shares = [], []
        for _ in range(self.rounds):
            for ranks in rates:
                section = {"vpp": {"method": "vpp" if ranks > 1 else "cpp"}}
                result = self.run(ranks, **section)
                rates[ranks].append(result["tokens_per_s"])
            bubbles.append(result["bubble_ratio"])
            shares = [rank["wait_send_s"] / rank["busy_s"] for rank in result["ranks"]]
            send_shares.append(max(shares))
        speedups = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
        return {
            "tokens_per_s": {f"ranks_{n}": median(values) for n, values in rates.items()},
            "speedup": median(speedups),
            "speedup_rounds": speedups,
            "bubble_ratio": median(bubbles),
            "wait_send_over_busy": median(send_shares),
        }

    def peer(self, peer_python: str) -> dict:
        """(a) one rank, the peer and the GEMM rate, in turn, on one core."""
        rounds = []
        for _ in range(self.rounds):
            peer = json.loads(
                _pinned(
                    peer_python,
                    "peer_transformers.py",
                    str(self._model_dir),
                    str(self.tokens),
                    str(self.chunk_tokens),
                )
            )
            self.run(1)
            ours = self._chunk_times_s()
            gemm = float(_pinned(sys.executable, "gemm_rate.py"))
            rounds.append({"ours_s": ours, "peer_s": peer["chunks_s"], "gemm_gflops": gemm})
        return self._against_peer(rounds)

    def _chunk_times_s(self) -> list[float]:
        """Computing time of each chunk of the newest one-rank run, from its trace."""
        trace = json.loads((self._work_dir / "output" / "trace.json").read_text())
        computed = [e for e in trace["traceEvents"] if e.get("cat") == "compute"]
        computed.sort(key=lambda e: e["ts"])
        return [event["dur"] / 1e6 for event in computed]

    def _against_peer(self, rounds: Sequence[dict]) -> dict:
        layers = CONFIG["num_hidden_layers"]
        work = [
            flops(min(self.chunk_tokens, self.tokens - start), start, layers)
            for start in range(0, self.tokens, self.chunk_tokens)
        ]
        deep = 8192 // self.chunk_tokens
        spans = {"whole": slice(0, None), "from_8k": slice(deep, None), "first_chunk": slice(0, 1)}
        table = {}
        for name, span in spans.items():
            if not work[span]:
                continue
            ours = [sum(r["ours_s"][span]) for r in rounds]
            peer = [sum(r["peer_s"][span]) for r in rounds]
            rates = [1e-9 * sum(work[span]) / s for s in ours]
            table[name] = {
                "ours_gflops": median(rates),
                "peer_gflops": median(1e-9 * sum(work[span]) / s for s in peer),
                "ours_over_peer": median(p / o for o, p in zip(ours, peer, strict=True)),
                "share_of_gemm_rate": median(
                    rate / r["gemm_gflops"] for rate, r in zip(rates, rounds, strict=True)
                ),
            }
        return {"gemm_gflops": median(r["gemm_gflops"] for r in rounds), "spans": table}

    def memory(self) -> dict:
        """(d) peak resident memory of the dearest of two ranks over the prompt length."""
        peaks = {}
        for tokens in (2048, 4096, 8192, 16384):
            result = self.run(2, tokens, vpp={"method": "vpp"})
            peaks[tokens] = max(rank["peak_rss_bytes"] for rank in result["ranks"])
        return {"peak_rss_bytes": peaks}


def main(
    work_dir: Path = Path("output/bench"),
    tokens: int = 16384,
    chunk_tokens: int = 512,
    rounds: int = 3,
    peer_python: str = sys.executable,
    parts: str = ",".join(PARTS),
    out: Path = HERE / "results" / "prefill_cpu.json",
) -> None:
    """Run the named parts; parts not run keep what the file holds of them."""
    work_dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(work_dir, tokens, chunk_tokens, rounds)
    result = json.loads(out.read_text()) if out.exists() else {}
    setting = {
        **where(),
        "tokens": tokens,
        "chunk_tokens": chunk_tokens,
        "rounds": rounds,
    }
    for part in parts.split(","):
        typer.echo(f"{part} ...", err=True)
        measured = bench.peer(peer_python) if part == "peer" else getattr(bench, part)()
        result[part] = {"setting": setting} | measured
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    typer.echo(json.dumps(result, indent=1))


def _pinned(python: str, script: str, *args: str) -> str:
    """Run a script of this directory on core 0 with one thread; the last line it prints."""
    command = ["taskset", "-c", "0", python, str(HERE / script), *args]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def _ignore(event: dict) -> None:
    """Progress is not shown."""


if __name__ == "__main__":
    typer.run(main)
