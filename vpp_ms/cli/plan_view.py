"""What `vpp-ms plan` prints: the plan, and its schedule in predicted time.

Times are predicted: from `vpp.costs`, or derived from a device card (see `sim.costs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vpp_ms.cli.choice_view import print_choice
from vpp_ms.config import ModelSpec, RunConfig
from vpp_ms.errors import ConfigError
from vpp_ms.plan import Plan, make_plan
from vpp_ms.plan.stages import StageSpec
from vpp_ms.schedule.grid import time_grid
from vpp_ms.schedule.schedule import Schedule
from vpp_ms.sim.costs import Costs
from vpp_ms.sim.defaults import costs_of, known_model
from vpp_ms.sim.planner import auto_problem, choose
from vpp_ms.sim.problem import bounds_of
from vpp_ms.sim.simulate import walk_prefill
from vpp_ms.sim.workload import Ask

MIB = 2**20
GRID_LABEL = len("rank 99 |")


def print_plan(
    config: RunConfig, tokens: Sequence[int] = (), console: Console | None = None
) -> None:
    """`tokens`: prompt lengths to plan for, in place of those of `input.prompts`.

    Raises CheckpointError, ConfigError, RequestError or PlanError.
    """
    from vpp_ms.model.registry import load_spec

    console = console or Console()
    spec = load_spec(config.pretrained_model_dir)
    lengths, new_tokens = _lengths(config, spec, tokens)
    costs = costs_of(config, spec)
    choice = None
    if config.vpp.method == "auto":
        choice = choose(auto_problem(config, spec, costs, lengths))
        config = choice.config
    plan = make_plan(config, spec, lengths, new_tokens=new_tokens, cost=known_model(config, spec))
    for length, extra in zip(lengths, new_tokens, strict=True):
        plan.check_request("--tokens" if tokens else "input.prompts", length, extra)
    _print_head(console, plan, spec)
    console.print(_stage_table(plan))
    console.print(_memory_table(plan))
    _print_chunks(console, plan, lengths)
    _print_schedule(console, plan, costs, lengths)
    if choice is not None:
        print_choice(console, choice)
    for note in plan.notes:
        _line(console, f"note: {note}")


def _lengths(
    config: RunConfig, spec: ModelSpec, tokens: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompt lengths, and the new tokens of each."""
    if tokens:
        return tuple(tokens), (config.input.max_new_tokens,) * len(tokens)
    if config.input.prompts is None:
        raise ConfigError(
            "input.prompts", "missing", allowed="a .jsonl or a text file", hint="--tokens 32768"
        )
    from vpp_ms.engine.prompts import read_prompts

    prompts = read_prompts(config, spec)
    return (
        tuple(len(prompt.token_ids) for prompt in prompts),
        tuple(prompt.max_new_tokens for prompt in prompts),
    )


def _print_head(console: Console, plan: Plan, spec: ModelSpec) -> None:
    placement = plan.placement
    _line(
        console,
        f"{plan.method}: placement {placement.kind}, {placement.num_ranks} ranks x "
        f"{placement.virtual_stages} stages, order {plan.order}, at most "
        f"{plan.window.micro_batches} micro-batches in flight",
    )
    experts = (
        "dense" if spec.moe is None else f"{spec.moe.num_experts} experts top-{spec.moe.top_k}"
    )
    _line(
        console,
        f"model: {spec.family}, {spec.num_layers} layers, hidden {spec.hidden_size}, "
        f"{spec.num_heads}/{spec.num_kv_heads} heads, {experts}, {plan.dtype}; plan {plan.hash}",
    )


def _stage_table(plan: Plan) -> Table:
    table = _table("stage", "rank", "layers", "count", "holds", "hands over")
    for stage in plan.stages:
        link = plan.placement.link_behind(stage.index)
        holds = [
            word for word, has in (("embedding", stage.is_first), ("head", stage.is_last)) if has
        ]
        if link is not None:
            hand_over = f"to rank {link.target}"
        else:
            hand_over = "samples here" if stage.is_last else "here (fold)"
        table.add_row(
            str(stage.index),
            str(stage.rank),
            f"{stage.first_layer}-{stage.end_layer - 1}",
            _count(stage),
            ", ".join(holds),
            hand_over,
        )
    return table


def _count(stage: StageSpec) -> str:
    """How many layers run at once: all that are held, or by turns some of them."""
    counts = sorted({end - first for first, end in stage.turns}) or [stage.num_layers]
    return " or ".join(map(str, counts)) + (f" of {stage.num_layers}" if stage.turns else "")


def _memory_table(plan: Plan) -> Table:
    table = _table("rank", "layers", "weights MiB", "KV MiB", "activations MiB", "sum MiB")
    for memory in plan.memory:
        layers = sum(stage.num_layers for stage in plan.stages_of(memory.rank))
        parts = (
            memory.weight_bytes,
            memory.kv_bytes,
            memory.activation_bytes,
            memory.total_bytes,
        )
        table.add_row(str(memory.rank), str(layers), *(f"{part / MIB:.1f}" for part in parts))
    return table


def _print_chunks(console: Console, plan: Plan, lengths: Sequence[int]) -> None:
    for length, times in _counted(lengths):
        chunks = plan.chunking.cut(length)
        count = f"{times} prompts" if times > 1 else "prompt"
        _line(
            console,
            f"{count} of {length} tokens: {plan.chunking.method} chunks: "
            + ", ".join(f"{n} x {size}" if n > 1 else str(size) for size, n in _counted(chunks)),
        )
    pool = plan.num_blocks * plan.block_size
    _line(console, f"KV pool: {plan.num_blocks} blocks of {plan.block_size} = {pool} tokens")
    if plan.needs_latency:
        _line(
            console,
            "dynamic chunks: sized by FLOPs here; a run first profiles (or give chunking.latency)",
        )


def _print_schedule(console: Console, plan: Plan, costs: Costs, lengths: Sequence[int]) -> None:
    walk = walk_prefill(plan, costs, lengths)
    schedule = Schedule.of_walk(walk)
    schedule.check()
    bound_s = bounds_of(plan, costs, [Ask(length) for length in lengths]).makespan_s
    _line(
        console,
        f"predicted, {costs.origin}: {walk.makespan_s:.4g} s, bubble {walk.bubble_ratio:.1%}; this "
        f"placement and these chunks take at least {bound_s:.4g} s in any order",
    )
    _line(
        console,
        f"schedule {schedule.hash}: {schedule.num_micro_batches} micro-batches. Letters are "
        "sweeps, numbers micro-batches, dots idle time:",
    )
    _line(console, time_grid(walk, columns=max(console.width - GRID_LABEL, 40)))


def _counted(values: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of equal values: (value, how many)."""
    return [(value, len(list(run))) for value, run in groupby(values)]


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        words = heading in {"holds", "hands over", "layers"}
        table.add_column(heading, justify="left" if words else "right")
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
