"""The catalogue of differences without a framework: data, code, command and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from command import DOCS, dualml, strict

from dualml.backend import BackendInfo
from dualml.common.errors import UserError
from dualml.common.words import section_messages
from dualml.interface.cli import diffs_terminal
from dualml.interface.cli.app import app
from dualml.parity.diffs import code, load
from dualml.parity.diffs.code import (
    function_body,
    function_sources,
    helper_source,
    package_of,
    parse_definitions,
    probe_names,
    reachable_names,
)
from dualml.parity.diffs.entry import TOPICS, DifferenceEntry
from dualml.parity.diffs.load import catalogue
from dualml.parity.diffs.lookup import entries_by_cause, entries_for_error
from dualml.parity.diffs.page import PAGES, render_page

ENTRIES = list(catalogue().values())
SIDES = ("torch", "mindspore")
by_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
by_lang = pytest.mark.parametrize("lang", ["en", "zh"])


# The data.


def test_there_are_enough_entries_of_every_topic() -> None:
    assert sum(entry.kind != "same" for entry in ENTRIES) >= 45
    assert [t for t in TOPICS if not any(entry.topic == t for entry in ENTRIES)] == []


CHINESE = re.compile(r"[\u4e00-\u9fff]")


def is_prose(text: str) -> bool:
    """Return whether a text has words besides code and names of the frameworks' parts."""
    rest = re.sub(r"`[^`]*`|\b(PyTorch|torch|MindSpore)\b", "", text)
    return bool(re.search(r"\b[a-z]{2,}\b", rest))


def test_code_is_no_prose() -> None:
    assert is_prose("MindSpore: pass `p`.")
    assert not is_prose("MindSpore: `ops.gelu(x)`; PyTorch: `gelu`.")


@by_entry
def test_texts_are_in_both_languages(entry: DifferenceEntry) -> None:
    fields = ("title", "torch", "mindspore", "remedy")
    assert CHINESE.search("".join(getattr(entry, field).zh for field in fields))
    for field in fields:
        text = getattr(entry, field)
        assert not CHINESE.search(text.en), field
        if is_prose(text.en):
            assert CHINESE.search(text.zh), field
        for told in (text.en, text.zh):
            assert told.count("`") % 2 == 0, told
            assert told == told.strip()
            assert "\n" not in told


@by_entry
def test_names_and_bounds_make_sense(entry: DifferenceEntry) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.name)
    assert entry.name not in TOPICS  # they share the anchors of the pages
    if entry.kind == "value":
        assert entry.at_least > 0
        assert entry.after is None or entry.after < entry.at_least


@by_entry
def test_there_is_a_probe_on_both_sides(entry: DifferenceEntry) -> None:
    for side in SIDES:
        assert code.probe_code(entry, package_of(side)).get("plain"), side
    if entry.after is not None and entry.kind != "same":  # something was done to get there
        assert any("equal" in code.probe_code(entry, package_of(side)) for side in SIDES)


def orphans(package: str, topic: str, entries: Iterable[DifferenceEntry]) -> list[str]:
    """Return the functions of a file that no entry has and no probe uses."""
    known = parse_definitions(package, topic)
    wanted = {name for entry in entries for name in probe_names(entry).values()}
    needed = reachable_names(known, wanted & known.keys())
    return [name for name in function_sources(package, topic) if name not in needed]


@pytest.mark.parametrize("topic", TOPICS)
def test_there_is_no_probe_without_an_entry(topic: str) -> None:
    for side in SIDES:
        assert orphans(package_of(side), topic, ENTRIES) == []


# The code of the probes, read from a file.

PROBES = '''
"""Probes."""
import framework

SCALE = 2.0

def scaled(x):
    return SCALE * x

@framework.quiet
def first(
    rank: int,
) -> float:
    """What it does."""
    # a reason
    return scaled(1.0)

def first_equal() -> float:
    # a reason
    x = first(0)

    return x

def stray():
    return 0.0
'''


@pytest.fixture
def probe_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DifferenceEntry:
    """Return an entry whose probes are in a package that may be read but not imported."""
    folder = tmp_path / "written_probes" / "parity" / "diffs"
    folder.mkdir(parents=True)
    (tmp_path / "written_probes" / "__init__.py").write_text("")
    (folder / "layers.py").write_text(PROBES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_entry("first")


def make_entry(name: str, **fields: Any) -> DifferenceEntry:
    text = {"en": "it", "zh": "它"}
    texts = dict.fromkeys(("title", "torch", "mindspore", "remedy"), text)
    return DifferenceEntry(name=name, topic="layers", sources=("a page",), **{**texts, **fields})


def test_the_code_is_what_stands_in_the_functions(probe_entry: DifferenceEntry) -> None:
    assert code.probe_code(probe_entry, "written_probes") == {
        "plain": "# a reason\nreturn scaled(1.0)",
        "equal": "# a reason\nx = first(0)\n\nreturn x",
    }
    assert helper_source([probe_entry], "written_probes") == (
        "SCALE = 2.0\n\ndef scaled(x):\n    return SCALE * x"
    )
    assert orphans("written_probes", "layers", [probe_entry]) == ["stray"]
    assert code.probe_code(probe_entry, "not_there_at_all") == {}
    assert helper_source([make_entry("stray")], "written_probes") == ""


def test_bodies_of_every_form() -> None:
    assert function_body("def f() -> int:\n    return 1") == "return 1"
    assert function_body("@a\n@b\ndef f(\n    x,\n    *rest,\n):\n\n    # why\n    return x") == (
        "# why\nreturn x"
    )


# The command where nothing is measured.


def run_diffs(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    code = app(["diffs", *words], standalone_mode=False)
    return code, capsys.readouterr().out


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that no framework is installed, and forbid starting processes."""
    from dualml.parity.diffs import measure

    known = {
        side: BackendInfo(side, "not_there_at_all", f"pip install {side}", "nowhere:Nothing")
        for side in SIDES
    }
    monkeypatch.setattr(measure, "frameworks", lambda: known)
    monkeypatch.setattr(measure, "run_probes", None)
    monkeypatch.setenv("COLUMNS", "200")


@by_lang
def test_the_table_has_every_entry(
    lang: str, absent: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run_diffs(["--no-run", "--lang", lang], capsys)
    assert code == 0
    for entry in ENTRIES:
        assert entry.name in out
        assert getattr(entry.title, lang).replace("`", "") in out
    assert str(len(ENTRIES)) in out
    assert "pip install" not in out  # nobody asked for a measurement


@by_lang
@by_entry
def test_an_entry_is_explained(
    entry: DifferenceEntry,
    lang: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    diffs_terminal.print_entry(entry, None, lang)
    out = capsys.readouterr().out
    shown = re.sub(r"\s+", "", out)
    texts = [getattr(getattr(entry, f), lang) for f in ("title", "torch", "mindspore", "remedy")]
    for text in (*texts, *entry.sources, *entry.seen):
        assert re.sub(r"[\s`]+", "", text) in shown.replace("`", ""), text
    for side in SIDES:
        for text in code.code_with_helpers(entry, package_of(side)).values():
            for line in text.splitlines():
                assert line.strip() in out


@by_lang
def test_without_the_frameworks_it_says_so(
    lang: str, absent: None, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"en": "torch is not installed", "zh": "未安装 torch"}[lang]
    for words in ([], [ENTRIES[0].name]):
        code, out = run_diffs([*words, "--lang", lang], capsys)
        assert code == 0
        assert said in out
        assert "pip install mindspore" in out
        assert ENTRIES[0].name in out


def test_json_has_the_data_and_the_code(absent: None, capsys: pytest.CaptureFixture[str]) -> None:
    code_, out = run_diffs(["--json"], capsys)
    told = strict(out)
    assert (code_, told["measured"], told["ok"]) == (0, False, None)
    assert told["versions"] == dict.fromkeys(SIDES)
    assert [one["name"] for one in told["entries"]] == [entry.name for entry in ENTRIES]
    for one, entry in zip(told["entries"], ENTRIES, strict=True):
        assert one["title"] == {"en": entry.title.en, "zh": entry.title.zh}
        assert one["code"]["torch"]["plain"] == code.probe_code(entry, "dualml_torch")["plain"]
        assert (one["measured"], one["problem"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["Upsample"], {"upsample-scale"}),
        (["avg_pool2d"], {"avgpool-functional"}),
        (["adam", "修正"], {"adamw-bias-correction"}),  # in either language
        (["ADAM epsilon"], {"adam-epsilon"}),
        (["moving average batchnorm"], {"batchnorm-momentum"}),  # those with most of them
        (["gelu"], {"gelu"}),  # a name is that entry, whatever else has the word
    ],
)
def test_words_find_entries(
    words: list[str], names: set[str], absent: None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = run_diffs([*words, "--json"], capsys)
    assert names <= {one["name"] for one in strict(out)["entries"]}
    assert len(strict(out)["entries"]) < 12
    code, text = run_diffs([*words, "--no-run"], capsys)
    assert code == 0
    assert all(name in text for name in names)


def test_what_a_comparison_names_leads_to_its_entries() -> None:
    known = entries_by_cause()
    assert known["avg_pool2d.stride"] == ("maxpool-stride", "avgpool-functional")
    assert all(re.fullmatch(r"[a-z0-9_]+\.[a-z_:]+", key) for key in known)
    assert entries_for_error("(net.py:3: self.up(x)) nn.Upsample(scale_factor=2)") == [
        "upsample-scale"
    ]
    assert entries_for_error("(net.py:3: x = self.body(x))") == []
    line = "kernel Embedding unregistered (net.py:3: self.embed(x)) {}nn.Embedding(5, 2)"
    assert entries_for_error(line.format("mint.")) == ["mint-nn"]
    assert entries_for_error(line.format("")) == []


def test_a_topic_is_all_that_is_shown(absent: None, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = run_diffs(["--topic", "layers", "--json"], capsys)
    found = {one["name"]: one["topic"] for one in strict(out)["entries"]}
    assert set(found.values()) == {"layers"}
    assert len(found) == sum(entry.topic == "layers" for entry in ENTRIES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gelo"], "did you mean 'gelu'"),
        (["qqqqqqqqqqqq"], "dualml diffs --no-run lists them"),
        (["layers"], "dualml diffs --topic layers"),
        (["--topic", "layer"], "did you mean 'layers'?"),
        (["gelu", "--topic", "layers"], "not both"),
        (["--lang", "la"], "--lang must be en or zh"),
        (["gelu", "--page", "."], "without NAME"),
        (["--no-run", "--page", "."], "without --no-run"),
        (["--page", "."], "install torch: pip install torch"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(words: list[str], said: str, absent: None) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        app(["diffs", *words], standalone_mode=False)


def test_wrong_usage_is_one_line_and_exit_2() -> None:
    done = dualml("diffs", "gelo", "--no-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dualml: no entry 'gelo'")
    assert len(done.stderr.splitlines()) == 1


def test_names_may_be_written_as_in_the_code() -> None:
    name = next(name for name in catalogue() if "-" in name)
    assert load.find_entry(name.replace("-", "_")).name == name


# The pages.


def lasting(text: str, lang: Any) -> list[str]:
    """Return the lines of a page without measured values."""
    lines = []
    for line in text.splitlines():
        if line.startswith(section_messages(lang, "diffs")["page.measured"]):
            line = section_messages(lang, "diffs")["page.measured"]
        elif line.startswith("| ["):
            line = " | ".join(re.split(r"(?<!\\)\|", line)[:4])
        elif "torch " in line and "MindSpore" not in line and "CPU" in line:
            line = "versions"
        lines.append(line)
    return lines


@by_lang
def test_the_page_is_what_the_data_say(lang: Any) -> None:
    text = (DOCS / PAGES[lang]).read_text("utf-8")
    remedy = "the page is old: write it again with `dualml diffs --page docs`"
    assert lasting(text, lang) == lasting(render_page(ENTRIES, lang, None, {"torch": "2"}), lang), (
        remedy
    )
    assert text.count(section_messages(lang, "diffs")["page.measured"]) == len(ENTRIES)
    rows = [re.split(r"(?<!\\)\|", x)[4:6] for x in text.splitlines() if x.startswith("| [")]
    assert all(cell.strip() for row in rows for cell in row), "figures are missing"


@by_lang
def test_a_page_that_is_old_is_noticed(lang: Any) -> None:
    now = render_page(ENTRIES, lang)
    entry = ENTRIES[0]
    changed = entry.title.model_copy(update={lang: "another"})
    others = [entry.model_copy(update={"title": changed}), *ENTRIES[1:]]
    assert lasting(render_page(others, lang), lang) != lasting(now, lang)
    assert lasting(render_page(ENTRIES[1:], lang), lang) != lasting(now, lang)
    first = code.probe_code(entry, "dualml_torch")["plain"].splitlines()[0]
    assert lasting(now.replace(first, "pass"), lang) != lasting(now, lang)


@by_lang
def test_the_links_of_a_page_lead_to_its_entries(lang: Any) -> None:
    text = render_page(ENTRIES, lang)
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    assert re.findall(r"\]\(#([^)]*)\)", text) == [entry.name for entry in ENTRIES]
    for entry in ENTRIES:
        assert [head.lower() for head in heads].count(entry.name) == 1
