"""The READMEs: short, the same in both languages, and every figure in a committed file."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from pathlib import Path

import pytest

from dualml.common.words import LANGUAGES
from dualml.parity.diffs.load import catalogue
from dualml.parity.models.judge import MARGIN

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"en": "README.md", "zh": "README.zh.md"}
MAX_LINES, MAX_PICTURE_BYTES = 110, 200_000
by_language = pytest.mark.parametrize("lang", LANGUAGES)


def readme(lang: str) -> str:
    return (ROOT / NAMES[lang]).read_text("utf-8")


def prose(lang: str) -> str:
    """Return the text without code, HTML, link targets and the figures of other tools."""
    text = re.sub(r"^```.*?^```", "", readme(lang), flags=re.M | re.S)
    text = re.sub(r"^\| \[.*$|<[^>]*>|\]\([^)]*\)|`[^`]*`", "", text, flags=re.M)
    return re.sub(r"Apache-2\.0|float64|lab\d", "", text)


@by_language
def test_it_is_a_screen_and_a_half(lang: str) -> None:
    assert len(readme(lang).splitlines()) <= MAX_LINES


@by_language
def test_its_pictures_are_small_and_of_one_size(lang: str) -> None:
    pictures = [ROOT / path for path in re.findall(r'(?:src|srcset)="([^"]+)"', readme(lang))]
    assert len(pictures) == 2
    sizes = {struct.unpack(">2I", path.read_bytes()[16:24]) for path in pictures}
    assert len(sizes) == 1
    assert all(path.stat().st_size <= MAX_PICTURE_BYTES for path in pictures)


def port_figures() -> dict[str, tuple[int, ...]]:
    """Return row of the benchmark's table → its figures for the held-out half, from the committed
    results."""
    rows = json.loads((ROOT / "benchmarks/ports/results.json").read_text("utf-8"))
    assert {row["half"] for row in rows} == {"held-out"}
    wrong = [row for row in rows if row["wrong"]]
    right = [row for row in rows if not row["wrong"]]
    found = [row for row in wrong if row["verdict"] == "different"]
    causes = Counter(row["cause"] for row in found)
    named, labelled = len(found) - causes[""], causes["label"]
    return {
        "found": (len(found), len(wrong)),
        "phase": (sum(row["phase_right"] for row in found),),
        "line": (sum(row["line_right"] for row in found),),
        "named": (named,),
        "reader": (labelled + causes["reader"],),
        "label": (labelled,),
        "equal": (sum(row["verdict"] == "equal" for row in right), len(right)),
        "alarms": (sum(row["verdict"] == "different" for row in right),),
    }


@by_language
def test_the_table_of_ports_is_of_the_committed_results(lang: str) -> None:
    page = (ROOT / f"docs/benchmarks-comparisons{'' if lang == 'en' else '.zh'}.md").read_text()
    cells = re.findall(r"^\| [^|]+ \| ([\d./% （）()of]+) \| [^|]+ \| [^|]*\|$", page, re.M)
    found = [tuple(map(int, re.findall(r"\d+(?! ?%)\b", cell))) for cell in cells[:9]]
    of = port_figures()
    rows = ("found", "phase", "line", "named", "reader", "reader", "label", "label", "equal")
    assert found == [of[row] for row in rows]
    assert of["alarms"] == (0,)


def report_figures() -> set[str]:
    """Return of the held-out public reports with two differing sides: how many there are, how many
    were found, and of how many the right cause was named."""
    results = json.loads((ROOT / "benchmarks/reports/results.json").read_text("utf-8"))
    rows = [row for row in results if row["half"] == "held-out" and row["expected"] == "different"]
    found = [row for row in rows if row["verdict"] == "different"]
    return {str(n) for n in (len(rows), len(found), sum(row["cause_right"] for row in found))}


def student_figures() -> set[str]:
    """Return of the held-out wrong solutions of students: how many there are, how many were
    detected, and how many named rightly."""
    results = json.loads((ROOT / "benchmarks/students/results.json").read_text("utf-8"))
    rows = [row for row in results if row["half"] == "held-out" and not row["right"]]
    detected = sum(row["detected"] for row in rows)
    return {str(n) for n in (len(rows), detected, sum(row["named"] == "right" for row in rows))}


def figures() -> dict[str, set[str]]:
    """Return file → the figures of the README that it holds; those of the program under its
    module."""
    of = port_figures()
    (size,) = set(re.findall(r"([\d.]+ GB) to download", (ROOT / "Makefile").read_text("utf-8")))
    return {
        "benchmarks/ports/results.json": {
            *map(str, (*of["found"], *of["named"], *of["reader"], of["equal"][1]))
        },
        "benchmarks/reports/results.json": report_figures(),
        "benchmarks/students/results.json": student_figures(),
        "Makefile": {size.removesuffix(" GB")},
        "dualml.parity.diffs": {str(len(catalogue()))},
    }


@by_language
def test_every_figure_is_in_a_committed_file(lang: str) -> None:
    known = set().union(*figures().values())
    versions = set(re.findall(r"3\.1\d", (ROOT / "pyproject.toml").read_text("utf-8")))
    found = set(re.findall(r"\d+(?:\.\d+)?", prose(lang)))
    assert found <= known | versions, found - known - versions
    assert known - {*figures()["Makefile"]} <= found
    assert ("ten envelopes" if lang == "en" else "十倍包络") in prose(lang)
    assert MARGIN == 10


def test_a_wrong_figure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = readme("en").replace("217 differences", "218 differences")
    assert wrong != readme("en")
    monkeypatch.setitem(globals(), "readme", lambda lang: wrong)
    with pytest.raises(AssertionError, match="218"):
        test_every_figure_is_in_a_committed_file("en")


@by_language
def test_the_port_of_the_readme_is_that_of_the_tutorial(lang: str) -> None:
    page = f"docs/tutorials/port-a-model{'' if lang == 'en' else '.zh'}.md"
    tutorial = (ROOT / page).read_text("utf-8")
    for path in (ROOT / "docs" / "examples" / "lenet_port").glob("*.py"):
        assert f"```python\n# {path.name}\n{path.read_text('utf-8')}```" in tutorial


@by_language
def test_continuous_integration_runs_the_test_commands_of_the_readme(lang: str) -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    (targets,) = re.findall(r"^for target in (.+); do$", script, re.M)
    named = re.findall(r"^make (\S+)", readme(lang), re.M)
    assert [name for name in named if name.startswith("test")] == targets.split()
