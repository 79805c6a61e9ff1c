"""The report page in a real browser: figures respond, and nothing is lost without scripts or on
paper."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import fake_run
import pytest
from chromium import Browser

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.report import render
from dualml.report.blocks import Fold, walk
from dualml.report.compose import compose
from dualml.report.draw import css, draw, script
from dualml.report.draw.scales import format_short
from dualml.report.figure import (
    Axis,
    Bar,
    BoxMark,
    Figure,
    Heatmap,
    LegendEntry,
    LineMark,
    Panel,
    SeriesId,
)

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(not chromium.installed(), reason="no Chromium with its driver here"),
]

MARKS = "[...document.querySelectorAll(`#figure-${arguments[0]} .m`)]"
#: Owner → visibility, of every mark of a figure.
SEEN = f"""return {MARKS}.map((m) => [m.dataset.arm ?? "", m.dataset.backend ?? "",
  m.getClientRects().length > 0])"""
TIP = "const t = document.querySelector('.fig-tip'); return t.hidden ? '' : t.innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.start_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = fake_run.MAIN | fake_run.SWEEP
    return fake_run.make_run(tmp_path_factory.mktemp("run"), arms=arms)


@pytest.fixture(scope="module")
def reports(folder: Path) -> dict[str, Path]:
    """Return the reports by language."""
    return {lang: render([folder], folder.parent / lang, lang)[0] for lang in ("en", "zh")}


@pytest.fixture(scope="module")
def report(reports: dict[str, Path]) -> Path:
    return reports["en"]


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Browser]:
    browser.open(report)
    browser.js("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    browser.log("browser")
    yield browser
    browser.media()
    browser.cdp("Emulation.clearDeviceMetricsOverride")
    browser.cdp("Emulation.setScriptExecutionDisabled", value=False)


def figures(folder: Path) -> dict[str, Figure]:
    blocks = walk(compose(load([folder]), Messages("en")).blocks)
    return {block.name: block for block in blocks if isinstance(block, Figure)}


def show(browser: Browser, folder: Path, figure: Figure) -> None:
    """Open a figure on a page of its own."""
    page = (
        '<!doctype html><meta charset="utf-8">'
        f"<style>{css()}</style>{draw(figure)}<script>{script()}</script>"
    )
    (folder / "page.html").write_text(page, encoding="utf-8")
    browser.open(folder / "page.html")


def place_of(page: Browser, figure: str, mark: int, point: int) -> tuple[float, float]:
    """Scroll a point of a curve into view and return its position in the window."""
    x, y = page.js(
        f"""const mark = {MARKS}.filter((m) => m.dataset.points)[arguments[1]];
        mark.scrollIntoView({{ block: "center", behavior: "instant" }});
        const [x, y] = mark.dataset.points.split("|")[arguments[2]].split(",").map(Number);
        const at = new DOMPoint(x, y).matrixTransform(mark.closest(".panel").getScreenCTM());
        return [at.x, at.y];""",
        figure,
        mark,
        point,
    )
    return x, y


def key_of(page: Browser, figure: str, name: str) -> tuple[float, float]:
    x, y = page.js(
        """const key = [...document.querySelectorAll(`#figure-${arguments[0]} .key`)]
          .find((k) => k.dataset.name === arguments[1]);
        key.scrollIntoView({ block: "center", behavior: "instant" });
        const box = key.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];""",
        figure,
        name,
    )
    return x, y


@pytest.mark.parametrize("point", [0, 3, -1])
def test_the_pointer_shows_arm_backend_and_values(page: Browser, folder: Path, point: int) -> None:
    """The tooltip shows arm, backend and values of the curves, in drawing order."""
    shown = figures(folder)["main-epochs"]
    panel = shown.panels[0]
    assert panel is not None
    lines = [m for m in panel.marks if isinstance(m, LineMark) and m.weight == "main" and m.joined]
    line = next(m for m in lines if m.owner == SeriesId("adam", "torch"))
    drawn = page.js(
        f"return {MARKS}.filter((m) => m.dataset.points).map((m) => "
        "[m.dataset.arm, m.dataset.backend])",
        "main-epochs",
    )
    index = point % page.js(
        f"return {MARKS}.filter((m) => m.dataset.points)[arguments[1]].dataset.points"
        ".split('|').length",
        "main-epochs",
        drawn.index(["adam", "torch"]),
    )
    page.point(*place_of(page, "main-epochs", drawn.index(["adam", "torch"]), index))
    tip = page.js(TIP)
    assert "adam · torch" in tip
    entry = tip[tip.index("adam · torch") :].splitlines()[1:3]
    assert entry == [
        f"{panel.x.label}: {format_short(float(line.x[index]))}",
        f"{panel.y.label}: {format_short(float(line.y[index]))}",
    ]


def test_far_from_every_curve_nothing_is_shown(page: Browser) -> None:
    page.point(*place_of(page, "main-epochs", 0, 0))
    assert page.js(TIP)
    page.point(1, 500)
    assert page.js(TIP) == ""
    assert page.js("return document.querySelectorAll('.ring').length") == 0


@pytest.mark.parametrize(("name", "of"), [("adam", 0), ("torch", 1)])
def test_an_arm_or_backend_is_switched_off_in_all_panels_and_on_again(
    page: Browser, name: str, of: int
) -> None:
    before = page.js(SEEN, "main-epochs")
    other = page.js(SEEN, "main-updates")
    assert all(seen for *_, seen in before)
    page.point(*key_of(page, "main-epochs", name), click=True)
    after = page.js(SEEN, "main-epochs")
    assert [seen for *owner, seen in after] == [owner[of] != name for *owner, seen in after]
    assert not all(seen for *_, seen in after)
    assert page.js(SEEN, "main-updates") == other
    pressed = (
        "return [...document.querySelectorAll('[aria-pressed=false]')].map((k) => k.dataset.name)"
    )
    assert page.js(pressed) == [name]
    x, y = place_of(page, "main-epochs", [o[:2] for o in before].index(["adam", "torch"]) % 3, 2)
    page.point(x, y)
    assert name not in page.js(TIP)
    page.point(*key_of(page, "main-epochs", name), click=True)
    assert page.js(SEEN, "main-epochs") == before
    assert page.js(pressed) == []


def test_the_keyboard_switches_and_walks(page: Browser) -> None:
    page.js("document.querySelector('#figure-main-epochs svg').focus()")
    assert page.js("return document.activeElement.getAttribute('role')") == "group"
    page.press("Right")
    first = page.js(TIP)
    page.press("Right")
    second = page.js(TIP)
    assert first
    assert second.splitlines()[0] == first.splitlines()[0]
    assert second != first
    page.press("Left")
    assert page.js(TIP) == first
    page.press("Down")
    assert page.js(TIP).splitlines()[0] != first.splitlines()[0]
    page.press("Escape")
    assert page.js(TIP) == ""
    page.press("Tab")
    focused = "return document.activeElement.dataset.name"
    name = page.js(focused)
    assert name == "gd"
    for key in ("Enter", "Space"):
        page.press(key)
        off = [arm for arm, _, seen in page.js(SEEN, "main-epochs") if not seen]
        assert bool(off) == (key == "Enter")
        assert set(off) <= {name}
    page.press("Tab")
    assert page.js(focused) == "sgd"


def test_bars_and_cells_tell_what_they_are(browser: Browser, tmp_path: Path) -> None:
    """Bars and cells have tooltips, also with names that look like markup; those of hidden series
    do not respond."""
    evil = "<i>\"'&"
    owner = SeriesId(series=evil)
    bars = [Bar(0, 3, owner, left=1), BoxMark(1, 0.7, 4, 0.6, owner, hint="so;many")]
    shown = Figure(
        "shapes",
        "",
        "shapes",
        [
            Panel(bars, Axis("ms"), Axis(names=("ring", evil))),
            Panel([Heatmap([[7, 8]], 8, "samples")], Axis("label", names="ab"), Axis(names=("0",))),
        ],
        [LegendEntry("series", evil, f"part {evil}")],
    )
    show(browser, tmp_path, shown)
    tips = []
    for k in range(4):
        x, y = browser.js(
            """const box = document.querySelectorAll("[data-hint]")[arguments[0]];
            box.scrollIntoView({ block: "center" });
            const { x, y, width, height } = box.getBoundingClientRect();
            return [x + width / 2, y + height / 2];""",
            k,
        )
        browser.point(x, y)
        tips.append(browser.js(TIP).strip().splitlines())
    name = f"part {evil}"
    assert tips == [
        [name, "ring", "ms: 3"],
        [name, "so", "many"],
        ["0", "label a", "7"],
        ["0", "label b", "8"],
    ]
    browser.js("document.querySelector('.key').dispatchEvent(new MouseEvent('click'))")
    browser.js("document.querySelector('svg').focus()")
    browser.press("Right")
    assert browser.js(TIP).strip().splitlines() == ["0", "label a", "7"]


def wait_until_stable(page: Browser, body: str) -> Any:
    """Return a script's value once it is the same twice in a row: a loaded machine is still laying
    out the page."""
    last, now = None, page.js(body)
    deadline = time.monotonic() + 20
    while now != last and time.monotonic() < deadline:
        time.sleep(0.2)
        last, now = now, page.js(body)
    return now


def test_without_scripts_nothing_is_missing(page: Browser, report: Path) -> None:
    marks = """return [...document.querySelectorAll('svg.fig .m')]
      .filter((m) => m.getClientRects().length).length"""
    text = "return document.querySelector('main').innerText"
    with_script = wait_until_stable(page, marks), wait_until_stable(page, text)
    page.cdp("Emulation.setScriptExecutionDisabled", value=True)
    page.open(report)
    page.js("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.js("return document.querySelectorAll('[role=button], .fig-tip').length") == 0
    assert page.js("return document.querySelector('svg.fig').getAttribute('role')") == "img"
    assert (wait_until_stable(page, marks), wait_until_stable(page, text)) == with_script
    assert with_script[0] > 50


def test_nothing_is_loaded_and_nothing_fails(page: Browser, report: Path) -> None:
    page.log("performance")
    page.open(report)
    page.point(*key_of(page, "main-epochs", "adam"), click=True)
    page.point(*place_of(page, "main-epochs", 0, 0))
    asked = [
        url
        for entry in page.log("performance")
        for url in re.findall(r'"Network.requestWillBeSent".*?"url":"([^"]+)"', entry["message"])
    ]
    assert set(asked) <= {report.as_uri()}
    assert page.log("browser") == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [390, 820, 1300])
def test_no_page_is_wider_than_its_screen(
    page: Browser, reports: dict[str, Path], width: int, lang: str
) -> None:
    page.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=844,
        deviceScaleFactor=2,
        mobile=width < 500,
    )
    page.open(reports[lang])
    page.js("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.js("return innerWidth") == width


#: Script that returns, for every figure, texts that are cut off and texts that overlap.
FAULTS = """const faults = [];
for (const svg of document.querySelectorAll("svg.fig")) {
  const all = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((t) => [t, t.getBoundingClientRect()]);
  for (const [t, a] of texts) {
    if (a.left < all.left - 2 || a.right > all.right + 2 || a.bottom > all.bottom + 2)
      faults.push(`${t.textContent} is cut`);
    for (const [u, b] of texts)
      if (t !== u && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
          && b.top < a.bottom - 3)
        faults.push(`${t.textContent} on ${u.textContent}`);
  }
}
return faults;"""


def test_letters_of_figures_lie_inside_and_apart(page: Browser) -> None:
    """Measured with this machine's fonts: no text is cut and no label overlaps another."""
    assert page.js("return document.querySelectorAll('svg.fig text').length") > 100
    assert page.js(FAULTS) == []


@pytest.mark.parametrize("name", ["a-long-name-of-an-arm WWW " * 9, "很长的名字" * 40])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_long_names_lie_inside_and_apart(
    browser: Browser, tmp_path: Path, name: str, columns: int
) -> None:
    bars = [Bar(row, 3 + row, SeriesId(f"{name}{row}"), text="12.5 ms") for row in (0, 1, 2)]
    panel = Panel(bars, Axis(name), Axis(name, names=(name,) * 3, beside=(name,) * 3), name)
    other = Panel(
        [LineMark([0, 1e6], [1e-9, 1])], Axis("x"), Axis("loss", "log"), "title", height=90
    )
    shown = Figure("long", "", "", [panel, other, panel, panel], columns=columns)
    show(browser, tmp_path, shown)
    assert browser.js(FAULTS) == []


def test_letters_are_seen_on_dark_screens_and_on_paper(page: Browser) -> None:
    """Text contrasts with the background on light and dark screens and on paper (brightness 0 to
    255)."""
    light = """const of = (e, name) =>
        Math.max(...getComputedStyle(e)[name].match(/\\d+/g).map(Number));
      const figure = document.querySelector("svg.fig");
      return [of(document.body, "backgroundColor"), of(figure, "color")]"""
    page.media(scheme="light")
    ground, ink = page.js(light)
    assert ground - ink > 150
    page.media(scheme="dark")
    ground, ink = page.js(light)
    assert ink - ground > 150
    page.media(scheme="dark", kind="print")
    ground, ink = page.js(light)
    assert ground - ink > 150


def test_paper_holds_what_is_folded(page: Browser, folder: Path, report: Path) -> None:
    import pypdf

    page.open(report)  # with its folds closed
    printed = pypdf.PdfReader(io.BytesIO(page.pdf()))
    text = "".join("".join(sheet.extract_text() for sheet in printed.pages).split())
    folds = [b for b in walk(compose(load([folder]), Messages("en")).blocks) if isinstance(b, Fold)]
    assert len(folds) > 3
    for part in page.js(
        """return [...document.querySelectorAll("details")].flatMap((d) =>
             [...d.querySelectorAll("p, td, figcaption")].map((e) => e.textContent))
           .filter((t) => /^[\\x20-\\x7e]{12,}$/.test(t))"""
    ):
        assert "".join(part.split())[:40] in text, part
