"""Tables of what ran for real, from the files that the benchmarks left in benchmarks/results/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.paper.shaped import table

RESULTS = Path("benchmarks/results")
WORKLOADS = {"single": "one of 512K", "stream_of_8": "8 of 128K"}


def simulator() -> tuple[dict[str, Any], str]:
    """benchmarks/results/simulator.json, and its rows as a table."""
    result = json.loads((RESULTS / "simulator.json").read_text(encoding="utf-8"))
    rows = [
        [
            row["variant"],
            str(row["tokens"]),
            f"{row['measured_s']:.3f}",
            f"{row['simulated_s']:.3f}",
            f"{row['error']:+.1%}",
            _yes(row["order_equal"]),
            _yes(row["bytes_equal"]),
        ]
        for row in result["rows"]
    ]
    headings = ["run, chunk size", "tokens", "measured s", "simulated s", "error"]
    return result, table([*headings, "order as executed", "bytes as sent"], rows)


def emulated() -> tuple[float, str]:
    """The worst difference of two bubbles, in points; and all as a table."""
    result = json.loads((RESULTS / "emulated.json").read_text(encoding="utf-8"))
    rows, differences = [], []
    for case in result["cases"]:
        for layout, row in case["layouts"].items():
            differences.append(abs(row["difference_points"]))
            rows.append(
                [
                    str(case["ranks"]),
                    WORKLOADS[case["workload"]],
                    layout,
                    f"{row['simulated_bubble']:.2%}",
                    f"{row['emulated_bubble']:.2%}",
                    f"{row['difference_points']:+.2f}",
                    f"{row['emulated_over_simulated_makespan']:.3f}",
                ]
            )
    headings = ["ranks", "prompts", "layout", "simulated bubble", "emulated bubble"]
    return max(differences), table([*headings, "points", "makespans' ratio"], rows)


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"
