"""What a planner may choose from. Keys given explicitly leave one value to try.

`chunking.chunk_tokens`, where given, stays the largest chunk; smaller ones may be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vpp_ms.config.schema import RunConfig
from vpp_ms.plan.chunking import DYNAMIC_METHODS, METHODS, PRESETS
from vpp_ms.plan.placement import Placement
from vpp_ms.schedule.policy import BEST

Order = float | str
Split = tuple[int, ...] | str  # layers per stage, or "turns"
# Plainest first: the plainer of two that are as good is chosen.
PLACEMENTS = (
    ("plain", 1),
    ("v", 2),
    ("loop", 2),
    ("loop", 3),
    ("v", 4),
    ("loop", 4),
    ("v", 6),
    ("loop", 6),
    ("v", 8),
    ("loop", 8),
)
FINEST = 32  # the finest chunk is the longest prompt over 32 P
SIZE_STEP = 2.0**0.5
FLOOR_SHARES = (8, 64)  # dynamic chunks shrink to such a part of the first at most


class Frame(NamedTuple):
    """All that is chosen but the chunk size and the order. `split`: "balanced", "even" or "turns".

    Dynamic chunks are no smaller than the first over `floor_share`.
    """

    kind: str
    virtual_stages: int
    split: str
    chunking: str
    floor_share: int


def placements(config: RunConfig, num_layers: int) -> list[Placement]:
    """Plainest first; those with more stages than layers are left out, unless that leaves none."""
    found = [Placement(kind, num_ranks, v) for kind, v, num_ranks in _options(config)]
    return [p for p in found if p.num_stages <= num_layers] or found[:1]


def chunkings(config: RunConfig) -> Iterator[tuple[str, int]]:
    """Ways to cut a prompt: method and floor share."""
    for method in (config.chunking.method,) if config.chunking.method else METHODS:
        is_free = method in DYNAMIC_METHODS and config.chunking.min_chunk_tokens is None
        for share in FLOOR_SHARES if is_free else FLOOR_SHARES[:1]:
            yield method, share


def leans(config: RunConfig, virtual_stages: int, wanted: Sequence[Order]) -> tuple[Order, ...]:
    """Orders to try, of those wanted where none is given."""
    if virtual_stages == 1 or config.parallel_config.pipeline_stage == 1:
        return (BEST,)  # one stage per rank: there is nothing to choose
    return tuple(wanted) if config.vpp.order == BEST else (config.vpp.order,)


def _options(config: RunConfig) -> Iterator[tuple[str, int, int]]:
    vpp, num_ranks = config.vpp, config.parallel_config.pipeline_stage
    options: tuple[tuple[str, int], ...] = PLACEMENTS if num_ranks > 1 else PLACEMENTS[:1]
    if vpp.virtual_stages is not None:
        kinds = ("plain",) if vpp.virtual_stages == 1 else ("v", "loop")
        options = tuple((vpp.placement or kind, vpp.virtual_stages) for kind in kinds)
    elif vpp.placement is not None:
        options = tuple(option for option in PLACEMENTS if option[0] == vpp.placement)
    for kind, virtual_stages in dict.fromkeys(options):
        yield kind, virtual_stages, num_ranks


def chunk_sizes(config: RunConfig, longest: int) -> list[int]:
    """Base sizes to try, largest first, in steps of the square root of 2."""
    chunking = config.chunking
    most = longest
    if "chunk_tokens" in chunking.model_fields_set:
        most = min(chunking.chunk_tokens, longest)
    least = max(most // (FINEST * config.parallel_config.pipeline_stage), chunking.alignment, 1)
    least = max(least, chunking.min_chunk_tokens or 1)
    sizes, size = [], float(most)
    while size >= least:
        sizes.append(aligned(config, int(size)))
        size /= SIZE_STEP
    return sorted(set(sizes), reverse=True) or [aligned(config, most)]


def aligned(config: RunConfig, size: int) -> int:
    """A size that the configuration allows; whole KV blocks where it holds several."""
    unit, block_size = config.chunking.alignment, config.kv.block_size
    if size >= 4 * block_size and block_size % unit == 0:
        unit = block_size
    floor = max(config.chunking.min_chunk_tokens or 1, config.chunking.alignment)
    return max(size // unit * unit, floor)


def fill(
    config: RunConfig,
    frame: Frame,
    split: Split,
    chunk_tokens: int,
    window: int,
    latency_ms: tuple[float, ...] | None = None,
) -> RunConfig:
    """The configuration with everything decided but the order.

    `latency_ms` sizes dynamic chunks; None leaves it to a profile
    when ranks start.
    """
    vpp, chunking = config.vpp, config.chunking
    chosen = {
        "placement": frame.kind,
        "virtual_stages": frame.virtual_stages,
        "layer_split": split if vpp.layer_split == "auto" else vpp.layer_split,
        "window": vpp.window.model_copy(update={"micro_batches": window}),
    }
    sizes: dict[str, object] = {"method": frame.chunking, "chunk_tokens": chunk_tokens}
    if frame.chunking in DYNAMIC_METHODS:
        floor = max(chunk_tokens // frame.floor_share, chunking.alignment)
        sizes |= {"preset": "atom", "smoothing": 1.0, "min_chunk_tokens": floor}
        sizes["latency"] = chunking.latency or latency_ms
        sizes |= {
            name: getattr(chunking, name)
            for name in ("preset", "smoothing", "min_chunk_tokens")
            if name in chunking.model_fields_set and getattr(chunking, name) is not None
        }
    return config.model_copy(
        update={
            "vpp": vpp.model_copy(update=chosen),
            "chunking": chunking.model_copy(update=sizes),
        }
    )


def windows(config: RunConfig, virtual_stages: int) -> tuple[int, ...]:
    """Caps in micro-batches to try, widest first."""
    given = config.vpp.window.micro_batches
    if given is not None:
        return (given,)
    num_ranks = config.parallel_config.pipeline_stage
    return tuple(dict.fromkeys((4 * num_ranks * virtual_stages, 4 * num_ranks, 2 * num_ranks)))


def named(config: RunConfig) -> dict[str, RunConfig]:
    """The methods that a user could ask for by name, in this configuration.

    What the configuration gives explicitly stands; a named method that contradicts it is left
    out. All get the same window.
    """
    vpp, chunking = config.vpp, config.chunking
    found = {}
    for name, method, kind, preset in _NAMED:
        how = "dynamic" if preset else "fixed"
        if vpp.placement not in (None, kind) or chunking.method not in (None, how):
            continue
        if kind == "plain" and vpp.virtual_stages not in (None, 1):
            continue
        sizes = {"method": how} | ({"preset": preset} if preset else {})
        found[name] = config.model_copy(
            update={
                "vpp": vpp.model_copy(update={"method": method}),
                "chunking": chunking.model_copy(update=sizes),
            }
        )
    return found


_NAMED = (
    ("cpp", "cpp", "plain", None),
    *((f"dcpp {preset}", "dcpp", "plain", preset) for preset in PRESETS),
    ("vpp", "vpp", "v", None),
)
