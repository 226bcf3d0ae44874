"""Writes docs/results.md:  bash scripts/reproduce_paper.sh [TABLE ...]

Simulated tables: orders, composition, singles, long, pictures, streams, mixed, short. From files
that benchmarks wrote: simulator (python -m scripts.validate_simulator), emulated (python
benchmarks/emulated.py). Default: all; about 15 minutes on one core. Those not named stay as they
are in the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.paper import measured, single, theory, workloads
from scripts.paper.shaped import K

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/results.md"
CARD = (
    "times derived from the device card `ascend_910c` (peaks are the vendor's, shares and "
    "overheads assumed; see the card) and the public dimensions of the models; nothing here was "
    "run on such a device"
)
HEAD = """# Results

*Written by `scripts/reproduce_paper.sh`. What a table assumes stands above it. Most are
**simulated**: the same feeder, queues, window and orders that ranks run, in virtual time. The
first two say how far to trust that: one against **measured** runs, one against **emulated**
devices, where ranks, transport and order are real and only computing is a wait. What was measured
of the product itself is in the README.*

A bubble is 1 - busy time / (ranks x makespan), fill and drain included; steady leaves them out.
"""
PROMISED_BUBBLE, PROMISED_STEADY = 0.01, 0.001  # of a stream of 16 prompts of 512K tokens


def simulator() -> Iterator[str]:
    result, text = measured.simulator()
    yield "## Simulator against measured runs\n"
    yield (
        f"Measured: {result['machine']}, two ranks of one pinned core each, a synthetic Qwen3-MoE "
        f"of 8 layers in fp32, medians of {result['rounds']} interleaved rounds. Costs are "
        "calibrated on the rows named so, of the longer prompt, and predict all others, "
        "which are of other methods, chunk sizes and lengths. *Order as executed*: given the times "
        "that the ranks measured, the simulator injects and chooses on every rank just as they "
        "did.\n"
    )
    yield text
    yield (
        f"Makespans: median error {result['median_error']:.1%}, worst "
        f"{result['worst_error']:.1%} (targets 5 % and 10 %).\n"
    )


def emulated() -> Iterator[str]:
    worst, text = measured.emulated()
    yield "## Simulator against emulated devices\n"
    yield (
        f"Emulated: {CARD}. Real msrun ranks on two cores, real transport, feeder, order and "
        "trace; a stage sleeps its predicted time, slowed down so that a plain run takes half a "
        "minute, and messages are scaled down. The shape of Qwen3-235B-A22B with 96 layers, 16K "
        "chunks, 16 devices shared by the ranks.\n"
    )
    yield text
    yield f"Worst difference of the bubbles: {worst:.2f} points (target: 1).\n"


def orders() -> Iterator[str]:
    yield "## Orders against bounds\n"
    yield (
        "One request, n chunks on P ranks whose times grow linearly from 1 to r, free hops, no "
        "cap on what is in flight. The bound holds for any order; the last column is the V with "
        "one common order on all ranks, which collapses.\n"
    )
    yield theory.orders()


def composition() -> Iterator[str]:
    yield "## Placement and chunking compose\n"
    yield (
        f"{theory.assumptions()}; c = 10 %. Makespan over the sum of fixed 32K chunks. `best "
        "known` was found by an earlier search over placements, v <= 4, dynamic targets and "
        "tails.\n"
    )
    yield theory.composition()


def singles() -> Iterator[str]:
    yield "## Single requests: the planner against dynamic chunks\n"
    yield (
        f"{theory.assumptions()}; 64 layers. Columns say how much longer the others take than the "
        "planner's plan. `dcpp swept`: plain placement, dynamic chunks, the best of all base "
        "sizes; presets and cpp start from 32K chunks.\n"
    )
    gains = single.Gains()
    for fixed in single.FIXED:
        yield f"### c = {fixed:.0%}\n"
        yield single.singles(fixed, gains)
    yield "\n".join(single.summary(gains)) + "\n"


def long() -> Iterator[str]:
    yield "## Three models on 16 devices, one prompt\n"
    yield (
        f"Assumed: {CARD}. Tokens/s, each method at the chunk size (at most 32K) that suits it "
        "best; the bubble and the plan are the planner's.\n"
    )
    yield workloads.long_prompts()


def pictures() -> Iterator[str]:
    yield "## One prompt of 512K tokens in pictures\n"
    yield (
        f"Assumed: {CARD}. DeepSeek-V3.1 on PP4 x TP4; named methods with 32K chunks. Drawn by the "
        "same code as `vpp-ms report --png`.\n"
    )
    for path in workloads.pictures(PAGE.parent / "results"):
        yield f"![{path.stem}]({path.relative_to(PAGE.parent)})\n"


def streams() -> Iterator[str]:
    yield "## A stream of 16 prompts of 512K tokens\n"
    yield (
        f"Assumed: {CARD}. All methods may have {workloads.WINDOW} micro-batches in flight. Named "
        "methods use 32K chunks, or the largest power-of-two share of it that fits into memory. "
        "*Layers uneven by* is the bubble that whole layers cost, whatever the schedule: 61 layers "
        "do not divide by 2, 4, 8 or 16. Plans *by turns* share the odd layers, where memory has "
        "room for a layer more. *Busiest idles* is what the schedule leaves of the rank "
        "with most work.\n"
    )
    text, results = workloads.streams()
    yield text
    full = [r.place for r in results if r.bubble <= PROMISED_BUBBLE and r.steady <= PROMISED_STEADY]
    own = [r.place for r in results if r.busiest <= PROMISED_BUBBLE]
    yield (
        f"Target: steady bubble <= {PROMISED_STEADY:.1%}, with fill and drain <= "
        f"{PROMISED_BUBBLE:.0%}. The planner's plans meet it in full on {_words(full)}. The "
        f"schedule's own part, the idle time of the busiest rank, is at most {PROMISED_BUBBLE:.0%} "
        f"on {_words(own)}. Elsewhere the target is missed.\n"
    )


def _words(places: list[str]) -> str:
    return ", ".join(f"`{place}`" for place in places) or "no scenario"


def mixed() -> Iterator[str]:
    yield "## Mixed prompts, 1K to 256K tokens\n"
    yield (
        f"Assumed: {CARD}. 64 prompts, log-uniform lengths, all waiting from the start, at most "
        f"{workloads.WINDOW} micro-batches in flight for every method.\n"
    )
    text, gains = workloads.crowds("mixed", 256 * K)
    yield text
    presets = {name: values for name, values in gains.named.items() if name.startswith("dcpp")}
    reached = sum(min(v[i] for v in presets.values()) >= 0.067 for i in range(len(gains.swept)))
    yield (
        f"The planner is at least {min(map(min, presets.values())):+.1%} over every preset's "
        f"default and {min(gains.swept):+.1%} over swept dynamic chunks; 6.7 % over all presets' "
        f"defaults in {reached} of {len(gains.swept)} rows. Where it is less, packing already "
        "keeps plain ranks busy: what is left is the bubble in the table.\n"
    )


def short() -> Iterator[str]:
    yield "## Short prompts, 0.5K to 4K tokens\n"
    yield f"Assumed: {CARD}. 64 prompts, all waiting from the start.\n"
    text, gains = workloads.crowds("short", 4 * K)
    yield text
    yield (
        f"The planner is never below plain: {min(gains.named['cpp']):+.1%} at least over cpp with "
        f"32K chunks, {min(gains.swept):+.1%} over plain with the best dynamic chunks.\n"
    )


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "simulator": simulator,
    "emulated": emulated,
    "orders": orders,
    "composition": composition,
    "singles": singles,
    "long": long,
    "pictures": pictures,
    "streams": streams,
    "mixed": mixed,
    "short": short,
}


def main(wanted: list[str]) -> None:
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        sys.exit(f"unknown table {unknown[0]!r}; one of {', '.join(SECTIONS)}")
    kept = _read()
    for name in wanted or SECTIONS:
        start_s = time.perf_counter()
        kept[name] = "\n".join(SECTIONS[name]()).rstrip() + "\n"
        print(f"{name}: {time.perf_counter() - start_s:.0f} s", flush=True)
        _write(kept)
    print(f"wrote {PAGE.relative_to(ROOT)}")


def _read() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    pattern = r"<!-- table: (\w+) -->\n(.*?)(?=<!-- table: |\Z)"
    found = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {name: text.strip() + "\n" for name, text in found}


def _write(sections: dict[str, str]) -> None:
    parts = [f"<!-- table: {name} -->\n{sections[name]}" for name in SECTIONS if name in sections]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    stamp = f"Tables made at commit {commit or 'unknown'} or before.\n"
    PAGE.write_text("\n".join([HEAD, stamp, *parts]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
