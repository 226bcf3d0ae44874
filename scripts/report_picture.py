"""Writes docs/report.png, the README's picture of a report:  python scripts/report_picture.py

One simulated prompt on four ranks, plain, V and loop, under the pointer a micro-batch of V. Needs
Chromium and matplotlib's Pillow; run it in a checkout with the test extra installed.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import Chromium  # noqa: E402
from vpp_ms.plan import Placement  # noqa: E402
from vpp_ms.schedule import Segment, prioritize, walk  # noqa: E402
from vpp_ms.schedule.walk import Hop  # noqa: E402
from vpp_ms.trace import Trace, trace_of_walk  # noqa: E402
from vpp_ms.trace.cargo import cargo_meta  # noqa: E402
from vpp_ms.trace.report import ReportedRun, render_page  # noqa: E402

PICTURE = ROOT / "docs/report.png"
NUM_RANKS, NUM_CHUNKS, CHUNK_TOKENS, HOP_S = 4, 16, 8192, 0.02
CHUNK_S, GROWTH = 0.8, 7.0  # the last chunk costs GROWTH times the first


def simulate(kind: str, virtual_stages: int) -> Trace:
    placement = Placement(kind, NUM_RANKS, virtual_stages)
    step = (GROWTH - 1.0) / (NUM_CHUNKS - 1)
    costs_nS = [
        [CHUNK_S * (1.0 + step * i) / virtual_stages] * placement.num_stages
        for i in range(NUM_CHUNKS)
    ]
    segments = [(Segment(0, i * CHUNK_TOKENS, CHUNK_TOKENS),) for i in range(NUM_CHUNKS)]
    batches = prioritize(placement, segments, costs_nS, "best")
    walked = walk(placement, batches, costs_nS, hop_of=lambda link, mb: Hop(latency_s=HOP_S))
    meta = {"placement": kind, **cargo_meta(batches, ["one prompt of 128K"])}
    return trace_of_walk(walked, meta=meta)


def shoot(page: Path, profile: Path) -> Image.Image:
    """Bars and Gantt charts, the pointer on the last stage of a micro-batch of V."""
    browser = Chromium(profile, width=1180, height=1400)
    try:
        browser.open(page)
        left, top = browser.evaluate(
            """(() => {
              const box = document.querySelectorAll("#runs canvas")[1].getBoundingClientRect();
              return [box.left + LEFT + 0.487 * (box.width - LEFT - RIGHT), box.top + 15];
            })()"""
        )
        browser.mouse("mouseMoved", left, top)
        end = browser.evaluate('document.getElementById("chunks").getBoundingClientRect().top')
        shot = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
        return shot.crop((0, 0, shot.width, int(end) - 10))
    finally:
        browser.close()


def main() -> None:
    kinds = (("plain", 1), ("v", 2), ("loop", 4))
    runs = [ReportedRun(kind, simulate(kind, stages)) for kind, stages in kinds]
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        page.write_text(render_page(runs), encoding="utf-8")
        shot = shoot(page, Path(directory) / "profile")
    colours = shot.quantize(200, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    colours.save(PICTURE, optimize=True)
    print(f"wrote {PICTURE}, {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
