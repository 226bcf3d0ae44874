"""The report in a real browser: it loads from disk, answers the mouse, and complains of nothing."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Chromium, find_chromium
from tests.unit.trace.report_runs import simulated, write_comparison
from vpp_ms.trace import write_trace
from vpp_ms.trace.report import load_runs, render_page

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium here (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    write_trace(simulated("loop", 4, 16, prompts=(9000, 3000, 5000)), directory / "sixteen.json")
    runs = load_runs([write_comparison(directory / "both"), directory / "sixteen.json"])
    path = directory / "report.html"
    path.write_text(render_page(runs), encoding="utf-8")
    return path


@pytest.fixture
def report(browser, page):
    browser.events.clear()
    browser.mouse("mouseMoved", 1, 1)
    browser.open(page)
    yield browser
    assert browser.complaints() == []


def chart(browser, index=0):
    """Left edge, top and width of the work area of one Gantt chart, scrolled into sight."""
    return browser.evaluate(
        f"""(() => {{
          const canvas = document.querySelectorAll("#runs canvas")[{index}];
          canvas.scrollIntoView({{ block: "center" }});
          const box = canvas.getBoundingClientRect();
          return {{ left: box.left + LEFT, top: box.top, width: box.width - LEFT - RIGHT }};
        }})()"""
    )


def view(browser):
    return tuple(browser.evaluate("[view.from, view.to]"))


def tip(browser):
    return browser.evaluate(
        '(() => { const t = document.getElementById("tooltip");'
        " return t.hidden ? null : t.innerText; })()"
    )


def pixels(browser, index=0):
    """The chart as it is painted."""
    return browser.evaluate(f'document.querySelectorAll("#runs canvas")[{index}].toDataURL()')


def test_it_opens_offline_with_every_picture(report, page):
    assert report.requested() == [page.as_uri()]
    assert report.evaluate('document.querySelectorAll("#runs canvas").length') == 4
    titles = report.evaluate('[...document.querySelectorAll("#runs h3")].map((h) => h.innerText)')
    assert [title.split() for title in titles] == [
        ["cpp", "measured"],
        ["prediction", "of", "cpp", "simulated"],
        ["both/vpp", "measured"],
        ["sixteen/vpp", "simulated"],
    ]
    rows = report.evaluate('document.querySelector("#bars tbody").innerText')
    assert "idle" in rows and "drain" in rows and "measured" in rows and "simulated" in rows
    assert report.evaluate('document.querySelectorAll("#chunk-charts svg path").length') == 6
    assert report.evaluate('document.querySelectorAll("#predictions circle").length') == 16
    assert len(report.screenshot()) > 50_000, "an empty page is far smaller"


def test_hovering_tells_of_work_and_of_idle_time(report):
    place = chart(report)
    before = pixels(report)
    report.mouse("mouseMoved", place["left"] + 4, place["top"] + 10)
    text = tip(report)
    assert text.startswith("stage 0, micro-batch 0")
    assert "request prompt 0: 1,024 tokens on a prefix of 0" in text and "rank 0" in text
    assert pixels(report) != before, "the way of the micro-batch is drawn"
    report.mouse("mouseMoved", place["left"] + 4, place["top"] + 40)  # rank 1 has nothing yet
    assert tip(report).startswith("idle: fill") and "rank 1" in tip(report)
    report.mouse("mouseMoved", 2, place["top"])
    assert tip(report) is None and pixels(report) == before


def test_the_wheel_zooms_around_the_pointer_in_all_charts(report):
    place = chart(report)
    whole, other = view(report), pixels(report, 2)
    x = place["left"] + place["width"] / 4
    report.mouse("mouseWheel", x, place["top"] + 10, deltaX=0, deltaY=-240)
    near = view(report)
    assert near[1] - near[0] < 0.8 * (whole[1] - whole[0])
    still = near[0] + (near[1] - near[0]) / 4
    assert still == pytest.approx(whole[0] + (whole[1] - whole[0]) / 4, rel=0.01)
    assert pixels(report, 2) != other
    assert "to" in report.evaluate('document.getElementById("range").value')
    report.evaluate('document.getElementById("reset").click()')
    assert view(report) == whole and pixels(report, 2) == other


def test_dragging_selects_and_moves(report):
    place = chart(report)
    whole = view(report)
    y = place["top"] + 10

    def drag(start, end, **keys):
        for kind, share in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            x = place["left"] + share * place["width"]
            report.mouse(kind, x, y, button="left", buttons=1, clickCount=1, **keys)

    drag(0.25, 0.5)
    assert view(report) == pytest.approx([whole[1] / 4, whole[1] / 2], rel=0.01)
    drag(0.5, 0.25, modifiers=8)  # with shift
    assert view(report) == pytest.approx([whole[1] * 5 / 16, whole[1] * 9 / 16], rel=0.01)
    for clicks in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            report.mouse(kind, place["left"] + 9, y, button="left", clickCount=clicks)
    assert view(report) == whole


def test_colours_are_switched(report):
    found = {pixels(report, 3)}
    legends = {"request": "request prompt 2", "prefix": "8,192 tokens before it"}
    for name, legend in legends.items():
        report.evaluate(
            '[...document.querySelectorAll("#colouring button")]'
            f'.find((b) => b.innerText === "by {name}").click()'
        )
        found.add(pixels(report, 3))
        assert legend in report.evaluate('document.getElementById("colours").innerText')
    report.evaluate('document.getElementById("by-cause").click()')
    found.add(pixels(report, 3))
    assert len(found) == 4


def test_a_bar_tells_what_it_stands_for(report):
    place = report.evaluate(
        '(() => { const box = document.querySelector(".bar i:nth-child(2)")'
        ".getBoundingClientRect(); return [box.left + box.width / 2, box.top + 5]; })()"
    )
    report.mouse("mouseMoved", *place)
    assert "summed over 2 ranks" in tip(report)
