"""The pages: complete, self-contained, safe, in both languages."""

from __future__ import annotations

import re
import string
from html.parser import HTMLParser
from pathlib import Path

import fake_run
import pytest

from dualml.common.words import LANGUAGES, Messages, load_messages
from dualml.report import render
from dualml.report.blocks import Formula
from dualml.report.draw import script
from dualml.report.mathml import mathml
from dualml.report.page.html import render_blocks
from dualml.report.topics import principle

pytestmark = pytest.mark.whole


class Page(HTMLParser):
    """An HTML parser: visible text by element, all attributes, and whether tags close in order."""

    VOID = {"meta", "link", "br", "img", "hr", "input"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[list[str], str]] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, k, v or "") for k, v in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, k, v or "") for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((list(self.open), data))

    def text(self, *without: str) -> str:
        return " ".join(
            t for tags, t in self.texts if not set(tags) & {"style", "script", *without}
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = fake_run.MAIN | fake_run.SWEEP
    return fake_run.make_run(tmp_path_factory.mktemp("run"), arms=arms)


@pytest.fixture(scope="module", params=LANGUAGES)
def pages(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Path]:
    out = folder.parent / f"{folder.name}-{request.param}"
    render([folder], out, request.param)
    return request.param, out


def rows(html: str, name: str) -> list[str]:
    body = re.search(rf'<table id="table-{name}"[^>]*>.*?<tbody>(.*?)</tbody>', html, re.S)
    assert body is not None, name
    return re.findall(r"<tr>(.*?)</tr>", body[1], re.S)


def test_every_trial_and_comparison_has_its_row(pages: tuple[str, Path]) -> None:
    html = (pages[1] / "report.html").read_text("utf-8")
    trials = rows(html, "trials")
    assert len(trials) == 12 * 3 * 2
    for arm in fake_run.MAIN | fake_run.SWEEP:
        for backend in fake_run.SLOWER:
            mine = [r for r in trials if f">{arm}<" in r and f">{backend}<" in r]
            assert len(mine) == 2, (arm, backend)
    assert len(rows(html, "parity")) == 12 * 2 * 3 - 2  # one failed trial in two pairs
    assert len(rows(html, "arms")) == 12
    assert sum('class="tone bad"' in r for r in trials) == 1


def test_markdown_has_the_same_tables(pages: tuple[str, Path]) -> None:
    html = Page((pages[1] / "report.html").read_text("utf-8"))
    markdown = (pages[1] / "report.md").read_text("utf-8")
    assert markdown.count("\n| `adam` | ") == len(
        [t for tags, t in html.texts if tags[-2:] == ["tr", "th"] and t == "adam"]
    )
    for name in re.findall(r"\]\((figures/[^)]+)\)", markdown):
        assert (pages[1] / name).read_text("utf-8").startswith("<svg")
    figures = [tag for tag, key, _ in html.attributes if tag == "figure" and key == "id"]
    assert markdown.count("](figures/") == len(figures) > 0


def test_nothing_is_loaded_and_one_script_runs(pages: tuple[str, Path]) -> None:
    page = Page((pages[1] / "report.html").read_text("utf-8"))
    for tag, key, value in page.attributes:
        assert tag not in ("link", "iframe", "object", "embed")
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith("#"), (tag, key, value)
    (code,) = [t for tags, t in page.texts if "script" in tags]
    assert code.strip() == script().strip()
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|Function)\s*\(", code)
    css = " ".join(t for tags, t in page.texts if "style" in tags)
    assert "@import" not in css
    assert "url(" not in css.replace("url(#", "")


def test_ids_are_unique_and_links_meet(pages: tuple[str, Path]) -> None:
    page = Page((pages[1] / "report.html").read_text("utf-8"))
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    for _, key, value in page.attributes:
        if key in ("href", "xlink:href"):
            assert value[1:] in ids


def test_accessibility(pages: tuple[str, Path]) -> None:
    lang, out = pages
    page = Page((out / "report.html").read_text("utf-8"))
    got = {(tag, key): value for tag, key, value in page.attributes}
    assert got["html", "lang"] == {"en": "en", "zh": "zh-CN"}[lang]
    tags = [tag for tag, key, _ in page.attributes if key == "id" and tag == "table"]
    captions = [tags for tags, _ in page.texts if "caption" in tags]
    assert len(tags) == len(captions) > 8
    assert all(scope in ("row", "col") for _, key, scope in page.attributes if key == "scope")
    labels = [v for tag, key, v in page.attributes if key == "aria-label"]
    assert sum("adam torch 97." in v for v in labels) >= 3  # the curves, in words


def test_no_english_in_the_chinese_page(tmp_path: Path) -> None:
    """The texts of the English page do not appear in the Chinese one."""
    folder = fake_run.make_run(tmp_path / "run", arms=fake_run.MAIN | fake_run.SWEEP, failed=None)
    text = Page(render([folder], tmp_path, "zh")[0].read_text("utf-8")).text("code", "svg")
    for key, english in load_messages("en").items():
        literal = max((part[0] for part in string.Formatter().parse(english)), key=len, default="")
        if len(literal) > 12 and english != load_messages("zh")[key] and "SHA" not in literal:
            assert literal.strip() not in text, key


def test_text_of_the_run_cannot_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> | `x` ![i](http://example.org/i.png) & \"'"

    def change(run: dict) -> None:
        run["experiment"]["title"] = {"en": "<b>title</b>"}
        run["environment"]["torch"]["device"] = "<i>device</i>"
        run["data"]["notice"] = "<u>notice</u>"

    paths = render([fake_run.make_run(tmp_path, reason=evil, change=change)])
    html, markdown = (p.read_text("utf-8") for p in paths[:2])
    html = html.replace(f"<script>\n{script()}</script>", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | `x`" in html
    for bad in ("<script", "<b>title", "<i>device", "<u>notice"):
        assert bad not in html
        assert bad not in markdown
    assert "![i]" not in markdown
    assert r"!\[i\](http" in markdown


def test_the_failed_trial_is_shown_with_its_reason(tmp_path: Path) -> None:
    paths = render([fake_run.make_run(tmp_path)])
    for path in paths[:2]:
        text = path.read_text("utf-8")
        assert fake_run.REASON in text
        assert "17 of 18 trials succeeded" in text
    assert "All 18 trials succeeded" in render([fake_run.make_run(tmp_path, failed=None)])[
        0
    ].read_text("utf-8")


def test_without_parity(tmp_path: Path) -> None:
    paths = render([fake_run.make_run(tmp_path, parity=False)])
    text = paths[0].read_text("utf-8")
    assert "this run folder has no parity.json" in text
    assert 'id="table-parity"' not in text
    assert not [p for p in paths if "distance" in p.name]


def test_a_run_in_which_everything_failed(tmp_path: Path) -> None:
    def change(run: dict) -> None:
        for trial in run["trials"]:
            trial |= {"status": "failed", "reason": "killed", "test_accuracy": None}

    path = fake_run.make_run(tmp_path, change=change, parity=False)
    assert "convergence cannot be compared" in render([path])[0].read_text("utf-8")


def test_the_report_is_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    first, second = (render([folder], tmp_path / name) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_figures_keep_labels_whole_and_name_cjk_fonts(folder: Path, tmp_path: Path) -> None:
    render([folder], tmp_path, "zh")
    svg = (tmp_path / "figures/learning-rate-epochs.svg").read_text("utf-8")
    assert ">sgd-lr0.001</text>" in svg
    assert "训练损失 / nat" in svg
    assert "Noto Sans CJK SC" in svg


RICH = {
    "gd": {},
    "sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "adam": {"eps_form": "hat", "weight_decay": 0.1},
    "adamw": {"eps_form": "hat"},
    "adagrad": {"lr_decay": 0.1},
    "rmsprop": {"centered": True, "momentum": 0.9},
}


@pytest.mark.parametrize("latex", ["x^", r"\unknown{x}", r"\frac{1}"])
def test_a_formula_that_cannot_be_set_is_shown_as_it_is_written(latex: str) -> None:
    assert f"<code>{latex}</code>" in render_blocks([Formula(latex)], 2)


def formulas(optimizer: dict[str, object]) -> tuple[str, ...]:
    known, source = principle.rule_formulas(optimizer)
    assert source
    return known


@pytest.mark.parametrize("rule", RICH)
def test_formulas_follow_the_options(rule: str) -> None:
    plain, rich = formulas({"name": rule}), formulas({"name": rule, **RICH[rule]})
    assert (plain == rich) == (not RICH[rule])
    for formula in (*plain, *rich):
        Page(mathml(formula))
        assert "<mi>θ</mi>" in mathml(plain[-1])


def test_mathml_refuses_what_it_does_not_know() -> None:
    assert "<msubsup><mi>g</mi><mi>t</mi><mn>2</mn></msubsup>" in mathml("g_t^2")
    assert '<mi mathvariant="normal">sign</mi>' in mathml(r"\mathrm{sign}(g_t)")
    with pytest.raises(ValueError, match="integral"):
        mathml(r"\integral x")
    with pytest.raises(ValueError, match="unbalanced"):
        mathml("x}")


def test_plural_and_lists() -> None:
    en, zh = Messages("en"), Messages("zh")
    assert [en.count("update", n) for n in (0, 1, 2000)] == [
        "0 updates",
        "1 update",
        "2,000 updates",
    ]
    assert [en.join(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert zh.join(["a", "b", "c"]) == "a、b 和 c"
    assert zh.join(["相等", "不同"]) == "相等和不同"
    assert zh.join(["torch", "不同"]) == "torch 和不同"
