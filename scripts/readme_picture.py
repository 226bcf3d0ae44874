"""Writes docs/plain_and_v.svg, the README's picture:  python scripts/readme_picture.py

One long prompt on four ranks, plain and V, walked by the schedule objects that ranks use; the
later chunks cost more because their prefix is longer. A test fails when the file is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vpp_ms.plan import Placement
from vpp_ms.schedule import Segment, Walk, prioritize, walk

PICTURE = Path(__file__).resolve().parents[1] / "docs/plain_and_v.svg"

NUM_RANKS, NUM_CHUNKS, GROWTH = 4, 12, 6.0  # the last chunk costs GROWTH times the first
WIDTH, ROW, GAP, LEFT, TITLE = 960, 30, 5, 64, 34
SWEEP_COLOURS = ("#3b6fb6", "#e08a3c")  # down, up
IDLE = "#e9ecef"
FONT = 'font-family="system-ui, sans-serif"'


def run(kind: str, virtual_stages: int) -> Walk:
    """Chunk i costs 1 to GROWTH on one rank, shared evenly by the rank's stages."""
    placement = Placement(kind, NUM_RANKS, virtual_stages)
    steps = NUM_CHUNKS - 1
    costs_nS = [
        [(1.0 + (GROWTH - 1.0) * i / steps) / virtual_stages] * placement.num_stages
        for i in range(NUM_CHUNKS)
    ]
    segments = [(Segment(0, i, 1),) for i in range(NUM_CHUNKS)]
    return walk(placement, prioritize(placement, segments, costs_nS, "best"), costs_nS)


def render() -> str:
    plain, folded = run("plain", 1), run("v", 2)
    longest_s = max(plain.makespan_s, folded.makespan_s)
    height = 2 * (TITLE + NUM_RANKS * (ROW + GAP)) + 44
    second = TITLE + NUM_RANKS * (ROW + GAP) + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            "<title>One prompt in 12 chunks on four ranks: plain pipeline and V</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *_chart(plain, "plain: one stage per rank", 0, longest_s),
            *_chart(folded, "V: two half stages per rank, down and up", second, longest_s),
            *_legend(height - 14),
            "</svg>",
            "",
        ]
    )


def _chart(result: Walk, title: str, top: int, longest_s: float) -> Iterator[str]:
    scale = (WIDTH - LEFT - 10) / longest_s
    note = f"{title}, bubble {result.bubble_ratio:.1%}"
    yield _text(LEFT, top + 22, note, size=15, weight="bold")
    for rank in range(NUM_RANKS):
        y = top + TITLE + rank * (ROW + GAP)
        yield _text(8, y + 20, f"rank {rank}", size=13)
        yield _box(LEFT, y, result.makespan_s * scale, IDLE)
    for action in result.actions:
        y = top + TITLE + action.rank * (ROW + GAP)
        x, width = LEFT + action.start_s * scale, (action.end_s - action.start_s) * scale
        yield _box(x, y, width, SWEEP_COLOURS[action.stage // NUM_RANKS])
        if width >= 13:
            name = str(action.micro_batch)
            yield _text(x + width / 2, y + 20, name, size=12, fill="#ffffff", anchor="middle")


def _legend(y: int) -> Iterator[str]:
    entries = (
        (SWEEP_COLOURS[0], "first sweep, down the ranks"),
        (SWEEP_COLOURS[1], "second sweep, back up"),
        (IDLE, "idle"),
    )
    x = LEFT
    for colour, text in entries:
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 20, y, text, size=13)
        x += 44 + 7 * len(text)


def _box(x: float, y: float, width: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{fill}" '
        'stroke="#ffffff"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    fill: str = "#1f2933",
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}" text-anchor="{anchor}">{text}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(render(), encoding="utf-8")
    print(f"wrote {PICTURE}")
