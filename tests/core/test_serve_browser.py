"""The live page in a real browser: it follows a run and keeps the reader's choices."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromium
import fake_run
import pytest
from chromium import Browser
from serve_cases import growing, losses, serving

from dualml.experiment.store.trial import log_path
from dualml.experiment.store.verdicts import PARITY
from dualml.interface.serve import shell
from dualml.interface.serve.server import PageServer

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(not chromium.installed(), reason="no Chromium with its driver here"),
]

#: Script that counts the points of the running trial's smoothed curve, named by arm and backend.
POINTS = """const mark = [...document.querySelectorAll('#curves .m[data-points]')]
  .filter((m) => m.dataset.arm === 'adam' && m.dataset.backend === 'torch');
return Math.max(0, ...mark.map((m) => m.dataset.points.split('|').length))"""
LOG = "return document.querySelector('#text').textContent"
WIDE = "return [document.documentElement.scrollWidth, innerWidth]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.start_browser() as browser:
        yield browser


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, PageServer]]:
    """Return the folder of the running trial and its server; pages poll after a short time."""
    monkeypatch.setattr(shell, "EVERY_S", 0.1)
    monkeypatch.setattr(shell, "IDLE_S", 0.1)
    runs = tmp_path / "runs"
    fake_run.make_run(runs / "done", seeds=[0], failed=None)
    with growing(runs / "one", seeds=[0]) as place, serving(runs) as server:
        yield place, server


@pytest.fixture
def page(browser: Browser, run: tuple[Path, PageServer]) -> Iterator[Browser]:
    browser.open(run[1].gate.url())
    browser.log("browser")
    yield browser
    problems = browser.log("browser")
    browser.media()
    browser.cdp("Emulation.clearDeviceMetricsOverride")
    browser.cdp("Network.clearBrowserCookies")
    assert problems == []


def wait(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def url_of(server: PageServer, path: str) -> str:
    return f"http://127.0.0.1:{server.gate.port}{path}"


def test_the_token_leaves_the_address_and_the_links_go_on(
    page: Browser, run: tuple[Path, PageServer]
) -> None:
    _, server = run
    assert page.js("return location.href") == url_of(server, "/")
    assert page.js("return document.cookie") == ""
    page.js("document.querySelector('#runs a').click()")
    wait(lambda: page.js("return document.querySelector('#curves svg') !== null"))
    assert page.js("return location.pathname") == "/run"


def test_without_the_token_a_browser_sees_nothing(
    browser: Browser, run: tuple[Path, PageServer]
) -> None:
    browser.open(url_of(run[1], "/"))
    text = browser.js("return document.body.innerText")
    assert text.startswith("403: this page needs the token.")
    assert "done" not in text
    browser.log("browser")


def test_the_curve_grows_and_the_log_follows(page: Browser, run: tuple[Path, PageServer]) -> None:
    place, server = run
    page.open(url_of(server, "/run?run=one"))
    page.js("window.same = 'this page'")
    assert page.js(POINTS) == 10
    assert page.js(LOG) == "first line\n"
    losses(place, 11, 40)
    with log_path(place, 0).open("a") as log:
        log.write("".join(f"line {k} <b>é\n" for k in range(100)))
    wait(lambda: page.js(POINTS) == 40)
    wait(lambda: page.js(LOG).endswith("line 99 <b>é\n"))
    assert page.js(LOG).startswith("first line\nline 0 <b>é\n")
    bottom = "const t = document.querySelector('#text'); return t.scrollTop + t.clientHeight"
    assert page.js(bottom) >= page.js("return document.querySelector('#text').scrollHeight") - 2
    page.js("document.querySelector('#follow').click()")
    page.js("document.querySelector('#text').scrollTop = 0")
    with log_path(place, 0).open("a") as log:
        log.write("the last one\n")
    wait(lambda: page.js(LOG).endswith("the last one\n"))
    assert page.js("return document.querySelector('#text').scrollTop") == 0
    assert "40" in page.js("return document.querySelector('#ranks').innerText")
    assert page.js("return window.same") == "this page"


def test_the_verdict_comes_when_the_run_has_ended(
    page: Browser, run: tuple[Path, PageServer]
) -> None:
    place, server = run
    folder = place.parents[3]
    page.open(url_of(server, "/run?run=one"))
    verdicts = "return document.querySelector('#verdicts').innerText"
    assert "No verdict yet" in page.js(verdicts)
    done = PARITY.read(folder.parent / "done")
    PARITY.write(folder, done)
    wait(lambda: "torch – mindspore" in page.js(verdicts))


def test_what_a_reader_has_done_stays(page: Browser, run: tuple[Path, PageServer]) -> None:
    """An update of the page keeps switched-off curves, the focus, and ticked boxes."""
    place, server = run
    page.open(url_of(server, "/run?run=one"))
    key = "document.querySelector('#curves .key[data-name=gd]')"
    page.js(f"{key}.dispatchEvent(new MouseEvent('click')); {key}.focus()")
    losses(place, 11, 30)
    wait(lambda: page.js(POINTS) == 30)
    assert page.js(f"return {key}.getAttribute('aria-pressed')") == "false"
    assert page.js("return document.activeElement.dataset.name") == "gd"
    seen = "return document.querySelector('#curves .m[data-arm=gd]').getClientRects().length"
    assert page.js(seen) == 0
    page.press("Enter")
    assert page.js(f"return {key}.getAttribute('aria-pressed')") == "true"

    page.open(url_of(server, "/"))
    page.js("document.querySelector('input[value=done]').click()")
    fake_run.make_run(place.parents[4] / "new", seeds=[0])
    wait(lambda: page.js("return document.querySelector('input[value=new]') !== null"))
    ticked = "return [...document.querySelectorAll('input:checked')].map((box) => box.value)"
    assert page.js(ticked) == ["done"]


def test_two_runs_side_by_side(page: Browser, run: tuple[Path, PageServer]) -> None:
    place, _ = run
    button = "document.querySelector('#choice button')"
    assert page.js(f"return {button}.disabled") is True
    page.js("document.querySelector('input[value=done]').click()")
    assert page.js(f"return {button}.disabled") is True
    page.js("document.querySelector('input[value=one]').click()")
    page.js(f"{button}.click()")
    wait(lambda: page.js("return location.pathname") == "/run")
    wait(lambda: page.js("return document.readyState") == "complete")
    assert page.js("return document.querySelectorAll('#verdicts article').length") == 2
    owners = """return [...new Set([...document.querySelectorAll('#curves .m[data-points]')]
      .map((m) => m.dataset.series))].sort()"""
    assert page.js(owners) == ["done", "one"]
    long = """const adam = [...document.querySelectorAll('#curves .panel')]
      .find((panel) => panel.textContent.includes('adam'));
    const marks = adam.querySelectorAll('.m[data-series=one][data-backend=torch][data-points]');
    return Math.max(...[...marks].map((m) => m.dataset.points.split('|').length))"""
    assert page.js(long) == 10
    losses(place, 11, 25)
    wait(lambda: page.js(long) == 25)


def test_what_is_chosen_stands_in_the_address(page: Browser, run: tuple[Path, PageServer]) -> None:
    page.open(url_of(run[1], "/run?run=one"))
    choose = """const select = document.querySelector('select[name=metric]');
      select.value = 'test_accuracy';
      select.dispatchEvent(new Event('change', { bubbles: true }))"""
    for _ in range(3):  # a page that is just being put in again may not take it
        page.js(choose)
        with contextlib.suppress(AssertionError):
            wait(lambda: "metric=test_accuracy" in page.js("return location.search"), 8)
            break
    assert "metric=test_accuracy" in page.js("return location.search")
    wait(lambda: "test accuracy / %" in page.js("return document.body.textContent"))
    page.js("document.querySelector('#ranks table a').click()")
    wait(lambda: page.js("return location.hash") == "#log")
    assert "log=adam%2Ftorch%2Fseed0%2Frank0" in page.js("return location.search")


def test_the_language_is_switched_and_kept(page: Browser, run: tuple[Path, PageServer]) -> None:
    page.js("document.querySelector('nav a[lang=zh]').click()")
    wait(lambda: page.js("return document.documentElement.lang").startswith("zh"))
    assert "运行与作业" in page.js("return document.body.innerText")
    page.open(url_of(run[1], "/run?run=one"))
    assert "训练损失" in page.js("return document.querySelector('#curves').textContent")
    assert page.js("return document.title") == "one · dualml"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_page_is_wider_than_a_phone(
    page: Browser, run: tuple[Path, PageServer], lang: str
) -> None:
    page.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=2,
        mobile=True,
    )
    for path in ("/", "/run?run=one", "/run?run=one&run=done"):
        page.open(url_of(run[1], f"{path}{'&' if '?' in path else '?'}lang={lang}"))
        with contextlib.suppress(AssertionError):  # a loaded machine lays it out twice
            wait(lambda: page.js(WIDE) == [390, 390], 5)
        assert page.js(WIDE) == [390, 390], path


def test_hidden_pages_do_not_ask_and_lost_ones_say_so(
    page: Browser, run: tuple[Path, PageServer]
) -> None:
    _, server = run
    page.open(url_of(server, "/run?run=one"))
    page.log("performance")

    def count_requests() -> int:
        entries = [entry["message"] for entry in page.log("performance")]
        return sum('"Network.requestWillBeSent"' in text for text in entries)

    wait(count_requests)
    hide = "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true });"
    event = "document.dispatchEvent(new Event('visibilitychange'))"
    page.js(hide + event, True)
    time.sleep(0.5)  # one may be under way
    count_requests()
    time.sleep(0.5)
    assert count_requests() == 0
    page.js(hide + event, False)
    wait(count_requests)
    lost = "const p = document.querySelector('#lost'); return p.hidden ? '' : p.textContent"
    assert page.js(lost) == ""
    page.cdp("Network.enable")
    rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.cdp("Network.emulateNetworkConditions", offline=True, **rates)
    wait(lambda: "does not answer" in page.js(lost))
    page.cdp("Network.emulateNetworkConditions", offline=False, **rates)
    wait(lambda: page.js(lost) == "")
    page.log("browser")  # of what was asked meanwhile


def test_everything_has_a_name_and_can_be_reached(
    page: Browser, run: tuple[Path, PageServer]
) -> None:
    """Every control is reachable and named: buttons, boxes, lists and links, as assistive software
    sees them."""
    for path in ("/", "/run?run=one", "/run?run=one&run=done"):
        page.open(url_of(run[1], path))
        page.cdp("Accessibility.enable")
        nodes = page.cdp("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "checkbox", "combobox", "link", "navigation", "region", "log")
        named = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if node.get("role", {}).get("value") in roles
        ]
        assert {role for role, _ in named} >= {"navigation", "link", "region"}
        assert [role for role, name in named if not name.strip()] == []
    page.open(url_of(run[1], "/"))
    found = set()
    for _ in range(12):
        page.press("Tab")
        found.add(page.js("return document.activeElement.tagName"))
    assert found >= {"A", "INPUT"}


def test_nothing_is_loaded_from_elsewhere(page: Browser, run: tuple[Path, PageServer]) -> None:
    page.log("performance")
    page.open(url_of(run[1], "/run?run=one"))
    time.sleep(0.3)
    asked = [
        url
        for entry in page.log("performance")
        for url in re.findall(r'"Network.requestWillBeSent".*?"url":"([^"]+)"', entry["message"])
    ]
    assert asked
    assert [url for url in asked if not url.startswith((url_of(run[1], "/"), "data:"))] == []


def test_the_report_is_shown_in_an_origin_of_its_own(
    page: Browser, run: tuple[Path, PageServer]
) -> None:
    """The report is shown in a separate origin: it may come from another machine, and its script
    must not reach this server."""
    place, server = run
    folder = place.parents[3]
    (folder / "report.html").write_text("""<!doctype html><title>x</title><script>
      let cookies = "none";
      try { cookies = document.cookie } catch {}
      document.title = `${self.origin} ${cookies}`;
      fetch("/").then(() => (document.title += " read"), () => (document.title += " refused"));
      </script>""")
    page.open(url_of(server, "/run?run=one"))
    page.js("document.querySelector('#state p a').click()")
    wait(lambda: page.js("return location.pathname") == "/report")
    wait(lambda: page.js("return document.title").endswith("refused"))
    assert page.js("return document.title") == "null none refused"
    page.log("browser")


def test_a_run_that_comes_and_one_that_breaks(page: Browser, run: tuple[Path, PageServer]) -> None:
    place, _ = run
    manifest = place.parents[4] / "done/run.json"
    text = "return document.querySelector('#runs').innerText"
    content = json.loads(manifest.read_text())
    manifest.write_text("{")
    wait(lambda: "unreadable" in page.js(text))
    manifest.write_text(json.dumps(content))
    wait(lambda: "unreadable" not in page.js(text))
