"""The site builds without a warning, both languages have the same pages, and every link has a
target."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx", reason="needs the extra `docs`")

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "docs"), str(ROOT / "tests" / "core")]

import chromium  # noqa: E402
from _ext.links import Links, outside_code  # noqa: E402
from _ext.pages import Page, SiteError, sections, source_pages  # noqa: E402
from _ext.words import words  # noqa: E402

from dualml.interface.demo.recordings import LABS  # noqa: E402

LANGUAGES = ("en", "zh")
pytestmark = pytest.mark.timeout(600)  # a build is two minutes of one core where that is slow
browser_only = pytest.mark.skipif(not chromium.installed(), reason="no Chromium with its driver")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "docs"
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make.py", "--out", out],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def names(site: Path, lang: str) -> set[str]:
    return {path.relative_to(site / lang).as_posix() for path in (site / lang).rglob("*.html")}


def test_both_languages_have_the_same_pages(site: Path) -> None:
    english, chinese = (names(site, lang) for lang in LANGUAGES)
    assert english == chinese
    assert {"parity.html", "labs/lab1.html", "reference/cli.html", "contributing.html"} < english
    assert len([name for name in english if name.startswith("differences/")]) > 200


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_link_within_the_site_leads_to_a_page(site: Path, lang: str) -> None:
    for name in names(site, lang):
        page = site / lang / name
        for target in re.findall(r'(?:href|src)="([^"#]+)', page.read_text("utf-8")):
            if not re.match(r"[a-z]+:", target):
                path = page.parent / unquote(target.partition("?")[0])
                assert path.exists(), f"{name} links to {target}"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_comes_from_elsewhere(site: Path, lang: str) -> None:
    """No script, style, font or image is fetched from the web."""
    fetched = re.compile(r'<(script|img|iframe|link)[^>]+(src|href)="(https?:)?//')
    for name in names(site, lang):
        assert not fetched.search((site / lang / name).read_text("utf-8")), name


def test_the_reference_has_every_command_field_and_formula(site: Path) -> None:
    from typer.main import get_command

    from dualml.experiment.arm import Arm
    from dualml.experiment.keys import ARM, present_table
    from dualml.interface.cli.app import app

    for lang in LANGUAGES:
        text = (site / lang / "reference" / "cli.html").read_text("utf-8")
        commands = get_command(app).commands.items()
        single = [name for name, command in commands if not hasattr(command, "commands")]
        assert [name for name in single if f"<h2>dualml {name}<" not in text] == []
        text = (site / lang / "reference" / "experiment.html").read_text("utf-8")
        assert all(f">{key}</span>" in text for key in present_table(Arm.model_fields, ARM))
        text = (site / lang / "reference" / "api" / "dualml.algorithms.optim.html").read_text(
            "utf-8"
        )
        assert "Kingma" in text
        assert text.count("<math") > 10
        schema = json.loads((site / lang / "experiment.schema.json").read_text("utf-8"))
        assert schema["properties"]["arms"]


def test_the_texts_have_the_same_keys_in_both_languages() -> None:
    def keys(table: object, prefix: str = "") -> set[str]:
        if not isinstance(table, dict):
            return {prefix}
        return {key for name, one in table.items() for key in keys(one, f"{prefix}.{name}")}

    assert keys(words("en")) == keys(words("zh"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository with one page."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    contents = 'files = {}\n[[section]]\ntitle = { en = "A", zh = "甲" }\npages = ["a"]\n'
    (docs / "site.toml").write_text(contents, "utf-8")
    for name in ("index.md", "index.zh.md", "a.md", "a.zh.md"):
        (docs / name).write_text("# A\n")
    return tmp_path


@pytest.mark.parametrize("missing", ["a.md", "a.zh.md"])
def test_a_page_in_one_language_is_refused(small: Path, missing: str) -> None:
    assert [page.name for page in source_pages(small)] == ["a", "index"]
    (small / "docs" / missing).unlink()
    with pytest.raises(SiteError, match=r"docs/a(\.zh)?\.md is there in"):
        list(source_pages(small))


def test_a_page_without_a_section_or_a_name_without_a_page_is_refused(small: Path) -> None:
    assert sections({"index", "a"}, small) == [({"en": "A", "zh": "甲"}, ["a"])]
    with pytest.raises(SiteError, match="no section for b"):
        sections({"index", "a", "b"}, small)
    with pytest.raises(SiteError, match="names a, which does not exist"):
        sections({"index"}, small)


def test_where_links_of_a_page_go(small: Path) -> None:
    (small / "dualml").mkdir()
    (small / "dualml" / "x.py").touch()
    (small / "docs" / "p.svg").touch()
    at = small / "docs" / "a.md"
    pages = (Page("deep/a", {"en": at}), Page("b", {"en": small / "b.md"}))
    links = Links({page.name: page for page in pages}, small)
    url = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
    for target, wanted in {
        "#x": "#x",
        "https://a.b/c": "https://a.b/c",
        "../b.md#y": "../b.md#y",
        "differences.zh.md#gelu": "../differences/gelu.md",
        "differences.md": "../differences/index.md",
        "../dualml/x.py": f"{url}/blob/main/dualml/x.py",
        "../dualml/": f"{url}/tree/main/dualml",
        "p.svg": "../p.svg",
    }.items():
        assert links.target(target, at, "deep/a") == wanted
    assert links.target("../b.md#y", at, "deep/a", anchors=False) == "../b.md"
    assert links.pictures == {small / "docs" / "p.svg": "p.svg"}
    with pytest.raises(SiteError, match=r"docs/a.md links to nowhere.md, which does not exist"):
        links.target("nowhere.md", at, "deep/a")


def test_links_in_code_are_left_alone() -> None:
    text = "[a](x) `[a](x)` [`b`](x)\n```\n[a](x)\n```\n[a](x)"
    assert outside_code(text, str.upper) == "[a](X) `[a](x)` [`b`](X)\n```\n[a](x)\n```\n[a](X)"


def test_links_called_as_their_file_are_called_as_their_page() -> None:
    text = "[parity.md](parity.md#x) [the run](run.md) [a.md](https://b.c/a.md)"
    assert outside_code(text, str) == "[](parity.md#x) [the run](run.md) [a.md](https://b.c/a.md)"


@browser_only
@pytest.mark.parametrize(
    ("lang", "query", "page"),
    [
        ("en", "envelope", "parity"),
        ("zh", "梯度", "labs/lab1"),
        ("zh", "通信代价", "cost"),
    ],
)
def test_search_finds_pages(site: Path, lang: str, query: str, page: str) -> None:
    with chromium.started() as browser:
        browser.open(f"{(site / lang / 'search.html').as_uri()}?q={query}")
        found: list[str] = []
        deadline = time.monotonic() + 25
        while f"/{lang}/{page}.html" not in "".join(found) and time.monotonic() < deadline:
            time.sleep(0.2)
            found = browser.js(
                "return [...document.querySelectorAll('#search-results li a')].map((a) => a.href)"
            )
        assert any(f"/{lang}/{page}.html" in link for link in found), found


@browser_only
def test_the_switch_and_the_filter_work(site: Path) -> None:
    with chromium.started() as browser:
        for lang, other in (LANGUAGES, LANGUAGES[::-1]):
            browser.open(site / lang / "labs" / "lab1.html")
            browser.js("document.querySelector('.language-switch').click()")
            where = browser.js("return location.pathname")
            assert where.endswith(f"/{other}/labs/lab1.html")
        browser.open(site / "zh" / "differences" / "index.html")
        seen = (
            "return [...document.querySelectorAll('tbody tr')].filter((r) => r.offsetParent).length"
        )
        every = browser.js(seen)
        browser.js("""const field = document.querySelector('.filter input'); field.value = 'gelu';
          field.dispatchEvent(new Event('input', {bubbles: true}))""")
        assert 0 < browser.js(seen) < every / 10
        browser.open(site / "index.html")
        assert browser.js("return location.pathname").endswith("/en/index.html")


def test_the_gallery_has_a_small_picture_of_every_report() -> None:
    pictures = {path.name: path.stat().st_size for path in (ROOT / "docs" / "gallery").iterdir()}
    assert {*pictures} == {f"{lab}.{lang}.png" for lab in LABS for lang in LANGUAGES}
    assert sum(pictures.values()) < 3e6


def test_the_first_page_chooses_without_scripts(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    assert all(f'href="{lang}/index.html"' in text for lang in LANGUAGES)
