"""The batcher: prompts become segments, segments become micro-batches.

A prompt is cut by the plan's chunk rule alone, whatever else runs, so that its logits do not
depend on its batch mates' lengths. Only segments that end a prompt are packed: they share a
micro-batch up to the token budget, and one request's drain is the next one's fill.
"""

from __future__ import annotations

from collections.abc import Iterable

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.schedule.actions import Segment


def cut_prompt(
    slot: int, num_tokens: int, blocks: tuple[int, ...], block_size: int, rule: ChunkRule
) -> list[Segment]:
    """The prompt's segments in order; the last one samples."""
    segments, start = [], 0
    for length in rule.cut(num_tokens):
        end = start + length
        used = blocks[: -(-end // block_size)]
        segments.append(Segment(slot, start, length, sample=end == num_tokens, blocks=used))
        start = end
    return segments


def decode_segment(slot: int, position: int, blocks: tuple[int, ...], block_size: int) -> Segment:
    """The newest sampled token, at absolute `position`."""
    return Segment(slot, position, 1, sample=True, blocks=blocks[: position // block_size + 1])


def pack(segments: Iterable[Segment], max_tokens: int) -> list[tuple[Segment, ...]]:
    """Micro-batches of at most `max_tokens` tokens (a longer segment crosses alone).

    Keeps the order of the segments. A segment that does not end its prompt crosses alone.
    """
    packed: list[list[Segment]] = []
    room = 0
    for segment in segments:
        if not segment.sample:
            packed.append([segment])
            room = 0
        elif segment.length <= room:
            packed[-1].append(segment)
            room -= segment.length
        else:
            packed.append([segment])
            room = max_tokens - segment.length
    return [tuple(group) for group in packed]
