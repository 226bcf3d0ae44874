"""What a run and a comparison print at their end."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vpp_ms.config import RunConfig

MIB = 2**20


def print_result(result: dict[str, Any], config: RunConfig, console: Console | None = None) -> None:
    """Answers, the table of ranks, the bubble, and where the files lie."""
    console = console or Console()
    for request in result["requests"]:
        if request.get("text"):
            console.print(
                f"\n[bold]{_plain(request['id'])}[/bold] ({_summary(request)})", soft_wrap=True
            )
            console.print(request["text"].strip(), markup=False, highlight=False)
    console.print()
    console.print(_rank_table(result))
    console.print(_run_line(result), markup=False, highlight=False, soft_wrap=True)
    _print_file(console, "result", config, "result.json")
    if config.output.trace:
        _print_file(console, "trace ", config, "trace.json", " (open it in ui.perfetto.dev)")
    if config.output.logits:
        _print_file(console, "logits", config, "logits.safetensors")


def print_comparison(
    comparison: dict[str, Any], config: RunConfig, console: Console | None = None
) -> None:
    """Medians per method, and ratios of tokens/s to the first method."""
    console = console or Console()
    table = Table(
        box=SIMPLE_HEAD, title=f"{comparison['origin']}, median of {comparison['rounds']} rounds"
    )
    table.add_column("method")
    table.add_column("layout")
    for heading in (
        "chunks",
        "makespan s",
        "tokens/s",
        "bubble",
        "steady bubble",
        "ratio to first",
    ):
        table.add_column(heading, justify="right")
    for name, entry in comparison["methods"].items():
        median = entry["median"]
        table.add_row(
            name,
            f"{entry['placement']} x{entry['virtual_stages']}",
            str(len(entry["chunks"])),
            f"{median['makespan_s']:.2f}",
            f"{median['tokens_per_s']:.0f}",
            f"{median['bubble_ratio']:.1%}",
            _share(median["bubble_ratio_steady"]),
            f"{entry['ratio_to_first']:.3f}",
        )
    console.print(table)
    _print_file(console, "comparison", config, "compare.json")


def _run_line(result: dict[str, Any]) -> str:
    steady = _share(result["bubble_ratio_steady"])
    return (
        f"{result['method']} ({result['placement']}, {result['num_ranks']} ranks x "
        f"{result['virtual_stages']} stages): {result['prompt_tokens']} prompt tokens at "
        f"{result['tokens_per_s']:.0f} tokens/s, makespan {result['makespan_s']:.2f} s, "
        f"bubble {result['bubble_ratio']:.1%} (steady {steady}), {result['origin']}"
    )


def _rank_table(result: dict[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in (
        "rank",
        "busy s",
        "busy",
        "recv wait s",
        "send wait s",
        "sent MiB",
        "msgs",
        "peak MiB",
        "CPU s",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for rank in result["ranks"]:
        table.add_row(
            str(rank["rank"]),
            f"{rank['busy_s']:.2f}",
            f"{rank['busy_s'] / max(result['makespan_s'], 1e-9):.0%}",
            f"{rank['wait_recv_s']:.2f}",
            f"{rank['wait_send_s']:.3f}",
            f"{rank['bytes_sent'] / MIB:.1f}",
            str(rank["messages_sent"]),
            f"{rank['peak_rss_bytes'] / MIB:.0f}",
            f"{rank['cpu_s']:.1f}",
        )
    return table


def _summary(request: dict[str, Any]) -> str:
    first = request.get("ttft_s")
    words = [f"{request['prompt_tokens']} prompt tokens"]
    if first is not None:
        words.append(f"first token after {first:.2f} s")
    words.append(f"{len(request['output_token_ids'])} tokens out")
    words.append(f"finish: {request['finish_reason']}")
    return ", ".join(words)


def _print_file(
    console: Console, label: str, config: RunConfig, name: str, remark: str = ""
) -> None:
    console.print(
        f"{label}: {config.output_dir / name}{remark}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _share(ratio: float | None) -> str:
    """A run too short for a steady state has none."""
    return "-" if ratio is None else f"{ratio:.1%}"


def _plain(text: object) -> str:
    return str(text).replace("[", r"\[")
