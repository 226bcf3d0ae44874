"""Prompts become segments, segments become micro-batches: the same for ranks and planner."""

from __future__ import annotations

from collections.abc import Iterable

from vpp_ms.plan.chunking import ChunkRule
from vpp_ms.schedule.actions import Segment


def cut_prompt(
    request: int, prompt_tokens: int, rule: ChunkRule, cached_tokens: int = 0
) -> list[Segment]:
    """The segments of a prompt behind its cached prefix, in order; the last one samples."""
    segments, start = [], cached_tokens
    for length in rule.cut(prompt_tokens - cached_tokens, cached_tokens):
        is_last = start + length == prompt_tokens
        segments.append(Segment(request, start, length, sample=is_last))
        start += length
    return segments


def pack(
    segments: Iterable[Segment], max_tokens: int, num_turns: int = 1
) -> list[tuple[Segment, ...]]:
    """Micro-batches of at most `max_tokens` tokens (a longer segment crosses alone).

    Keeps the order of the segments. Only segments that end a prompt are packed: so one
    request's drain is the next one's fill. Requests of different turns are kept apart.
    """

    def same_turn(one: Segment, other: Segment) -> bool:
        return (one.request - other.request) % num_turns == 0

    packed: list[list[Segment]] = []
    room = 0
    for segment in segments:
        if segment.sample and segment.length <= room and same_turn(packed[-1][0], segment):
            packed[-1].append(segment)
            room -= segment.length
        else:
            packed.append([segment])
            room = max_tokens - segment.length if segment.sample else 0
    return [tuple(group) for group in packed]
