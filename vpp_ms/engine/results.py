"""What a run leaves behind in `output_dir`: result.json, trace.json, logits.safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import numpy as np
from safetensors.numpy import save_file

from vpp_ms.engine.job import Job
from vpp_ms.engine.measure import RankReport
from vpp_ms.engine.request import Request
from vpp_ms.engine.session import Run
from vpp_ms.engine.text import TextCodec
from vpp_ms.trace.events import WAIT, Event, Trace
from vpp_ms.trace.io import write_trace
from vpp_ms.trace.meta import run_meta
from vpp_ms.trace.metrics import measure

ROUNDS = "rounds"
COMPARED = ("makespan_s", "tokens_per_s", "bubble_ratio", "bubble_ratio_steady")


class Gathering:
    """Rank 0's collection of all runs of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._runs: dict[str, list[dict]] = {name: [] for name in job.variants}
        self._newest: dict[str, Run] = {}

    def add(self, variant: str, run: Run) -> None:
        if self._job.is_comparison and self._job.variants[variant].output.trace:
            directory = self._job.config.output_dir / variant / ROUNDS
            directory.mkdir(parents=True, exist_ok=True)
            if not self._runs[variant]:  # an earlier comparison may have had more rounds
                for old in directory.glob("*.json"):
                    old.unlink()
            write_trace(trace_of(run), directory / f"{len(self._runs[variant])}.json")
        self._runs[variant].append(describe(run))
        self._newest[variant] = run

    def write(self) -> dict:
        """Write the files; returns what result.json holds, or compare.json of a comparison.

        A comparison leaves each variant's newest run in a directory of the variant's name, and
        below it the traces of all rounds.
        """
        directory = self._job.config.output_dir
        if not self._job.is_comparison:
            return self._write_run(next(iter(self._runs)), directory)
        for variant in self._runs:
            self._write_run(variant, directory / variant)
        result = compare(self._runs)
        _write_json(directory / "compare.json", result)
        return result

    def _write_run(self, variant: str, directory: Path) -> dict:
        directory.mkdir(parents=True, exist_ok=True)
        run, result = self._newest[variant], self._runs[variant][-1]
        config = self._job.variants[variant]
        _add_text(result, config.pretrained_model_dir)
        _write_json(directory / "result.json", result)
        if config.output.trace:
            write_trace(trace_of(run), directory / "trace.json")
            if run.prediction is not None:
                write_trace(run.prediction, directory / "prediction.json")
        if config.output.logits:
            _write_logits(directory / "logits.safetensors", run)
        return result


def trace_of(run: Run) -> Trace:
    events = sorted(
        (Event(*event) for report in run.reports for event in report.events),
        key=lambda e: (e.start_s, e.rank),
    )
    meta = run_meta(run.plan, run.injected, [request.prompt.id for request in run.requests])
    return Trace(len(run.reports), tuple(events), run.origin, meta)


def describe(run: Run) -> dict:
    """One run in the words of result.json; text is added by the writer."""
    trace = trace_of(run)
    metrics = measure(trace)
    prompt_tokens = sum(r.prompt_tokens for r in run.requests if r.error is None)
    # Tokens per second of prefill: up to the last prompt's last chunk, whatever is decoded after.
    last_prefill_s = max((r.ttft_s or 0.0 for r in run.requests), default=0.0)
    return {
        "origin": run.origin,
        "method": run.plan.method,
        "placement": run.plan.placement.kind,
        "num_ranks": run.plan.placement.num_ranks,
        "virtual_stages": run.plan.placement.virtual_stages,
        "chunks": [micro_batch.num_tokens for micro_batch in run.prefill],
        "prompt_tokens": prompt_tokens,
        "makespan_s": metrics.makespan_s,
        "prefill_s": last_prefill_s,
        "tokens_per_s": prompt_tokens / last_prefill_s if last_prefill_s else 0.0,
        "bubble_ratio": metrics.bubble_ratio,
        "bubble_ratio_steady": metrics.bubble_ratio_steady,
        "plan_hash": run.plan.hash,
        "schedule_hash": run.schedule.hash,
        "ranks": [_rank(report, metrics.busy_s[report.rank]) for report in run.reports],
        "requests": [_request(request) for request in run.requests],
    }


def compare(runs: dict[str, list[dict]]) -> dict:
    """Medians over the rounds, and each method's tokens/s over the first method's."""
    methods: dict[str, dict] = {}
    for method, rounds in runs.items():
        methods[method] = {
            "rounds": [{key: one[key] for key in COMPARED} for one in rounds],
            "median": {key: _median(one[key] for one in rounds) for key in COMPARED},
            "placement": rounds[0]["placement"],
            "virtual_stages": rounds[0]["virtual_stages"],
            "chunks": rounds[0]["chunks"],
            "plan_hash": rounds[0]["plan_hash"],
        }
    first = next(iter(methods.values()))
    for entry in methods.values():
        pairs = zip(entry["rounds"], first["rounds"], strict=True)
        entry["ratio_to_first"] = median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in pairs)
    return {
        "origin": next(iter(runs.values()))[0]["origin"],
        "rounds": len(first["rounds"]),
        "methods": methods,
    }


def _median(values: Iterable[float | None]) -> float | None:
    """Of those that are known: a short run has no steady part."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _rank(report: RankReport, busy_s: float) -> dict:
    wait_recv_s = sum(
        end - start for kind, _, _, _, start, end, *_ in report.events if kind == WAIT
    )
    return {
        "rank": report.rank,
        "busy_s": busy_s,
        "wait_recv_s": wait_recv_s,
        "wait_send_s": report.wait_send_s,
        "bytes_sent": report.bytes_sent,
        "messages_sent": report.messages_sent,
        "peak_rss_bytes": report.peak_rss_bytes,
        "cpu_s": report.cpu_s,
    }


def _request(request: Request) -> dict:
    return {
        "id": request.prompt.id,
        "prompt_tokens": request.prompt_tokens,
        "chunks": list(request.chunks),
        "ttft_s": request.ttft_s,
        "output_token_ids": request.output_token_ids,
        "text": None,
        "finish_reason": request.finish_reason,
        "error": request.error,
    }


def _add_text(result: dict, model_dir: Path) -> None:
    codec = TextCodec.of(model_dir)
    if codec is None:
        return
    for request in result["requests"]:
        request["text"] = codec.decode(request["output_token_ids"])


def _write_logits(path: Path, run: Run) -> None:
    rows = {
        request.prompt.id: np.ascontiguousarray(request.prompt_logits_V, np.float32)
        for request in run.requests
        if request.prompt_logits_V is not None
    }
    save_file(rows, str(path))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
