"""Every case of `benchmarks/reports` is complete, and belongs to one half for good."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "reports"
FOLDERS = sorted(path for path in (FOLDER / "cases").iterdir() if path.is_dir())
MAX_LINES = 60


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Load `benchmarks/reports/run.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("reports_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reports_run"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["reports_run"]


def test_every_folder_is_a_case_with_its_keys(bench: Any) -> None:
    cases = bench.read_cases()
    assert [case.name for case in cases] == [folder.name for folder in FOLDERS]
    assert cases
    for case in cases:
        keys = set(case.facts)
        assert keys >= bench.REQUIRED, case.name
        assert keys <= bench.REQUIRED | bench.OPTIONAL, case.name
        assert ("command" in keys) != ("script" in keys), case.name
        assert case.facts["source"].startswith("https://"), case.name
        assert case.expected in bench.VERDICTS, case.name
        assert case.facts.get("phase", "update") in bench.PHASES, case.name
        if case.expected == "different":
            assert "words" in keys, case.name
        for words in case.facts.get("words", [["word"]]):
            assert words, case.name
            assert all(word == word.lower() for word in words), case.name


def test_names_are_unique_and_plain() -> None:
    names = [folder.name for folder in FOLDERS]
    assert len({re.sub("[^a-z0-9]", "", name) for name in names}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_the_files_of_a_command_exist_and_are_short(bench: Any) -> None:
    for case in bench.read_cases():
        text = " ".join(case.commands)
        for name in re.findall(r"[\w./-]+\.(?:py|toml|ipynb)", text):
            assert (case.folder / name).is_file(), (case.name, name)
        if "command" in case.facts:
            assert bench.QUESTION in case.facts["command"], case.name
        for file in case.folder.rglob("*"):
            if file.is_file():
                assert len(file.read_text("utf-8").splitlines()) <= MAX_LINES, file


def test_halves_are_stable(bench: Any) -> None:
    of_half = {name: bench.Case(name, {}).half for name in ("a", "b", "schedule", "ranks")}
    assert of_half == {"a": "tuned", "b": "tuned", "schedule": "held-out", "ranks": "tuned"}


PARAGRAPH = (
    "different: first at step 1, update, layer a (Linear), tensor a.bias. They lie apart. "
    "Cause, tested: `eps` of the optimizer is 1e-6 in torch B, 1e-8 in torch A; changed so, "
    "torch A computes there what torch B does. These explain it equally well: torch B adds 0.5 to "
    "the result. Then: torch B leaves out relu. With that the two sides are equal in one step."
)
PAGE = """different: first at step 1, update, layer a (Linear), tensor a.bias.

numbers  5.0e-03 apart (relative)

cause    `weight_decay` of the optimizer is 0.05 in mindspore for a.bias,
         0.0 in torch.
         Tested: with this change, the two sides are equal in all 3 recorded steps.

open     Explains it equally well: mindspore adds weight decay to the gradient.
more     `dualml diffs decay-filter`"""


def test_causes_are_read_from_a_paragraph_and_from_a_page(bench: Any) -> None:
    causes, ties = bench.split_causes("different", PARAGRAPH)
    assert "eps" in causes
    assert "relu" in causes
    assert "0.5" not in causes
    assert ties == "torch B adds 0.5 to the result."
    causes, ties = bench.split_causes("different", PAGE)
    assert "0.0 in torch" in causes
    assert "decay-filter" not in causes + ties
    assert ties == "mindspore adds weight decay to the gradient."
    assert bench.split_causes("refused", "Too few.") == ("Too few.", "")
    without = PAGE[: PAGE.index("cause")] + "cause    No cause was found: 9 changes were tried."
    assert bench.split_causes("different", without) == ("", "")


def test_a_minus_sign_counts_as_a_hyphen(bench: Any) -> None:
    assert bench.has_words("divided by n \N{MINUS SIGN} 1", [["n - 1"]])
    assert not bench.has_words("divided by n", [["n - 1"]])


def test_an_answer_is_read_from_text(bench: Any) -> None:
    def read(stdout: str, stderr: str, status: int) -> tuple[str, str]:
        outcome = bench.Outcome(stdout, stderr, status, 1.0, 1.0)
        verdict, _, phase = bench.read_answer(outcome, "python go.py")
        return verdict, phase

    assert read(PAGE, "", 0) == ("different", "update")
    assert read("", f"Traceback (most recent call last):\nAssertionError: {PAGE}", 1) == (
        "different",
        "update",
    )
    assert read("equal: all arrays.", "", 0) == ("equal", "")
    assert read("", "Traceback (most recent call last):\nKeyError: 'x'", 1) == ("stumbled", "")
    assert read("", "dualml: no such folder", 2) == ("refused", "")
    text = "Traceback (most recent call last):\ndualml.common.errors.UserError: no trace"
    assert read("", text, 1) == ("refused", "")


@pytest.mark.parametrize("page", ["benchmarks-comparisons.md", "benchmarks-comparisons.zh.md"])
def test_the_published_figures_are_those_of_the_results(bench: Any, page: str) -> None:
    results = json.loads((FOLDER / "results.json").read_text("utf-8"))
    assert [row["name"] for row in results] == [case.name for case in bench.read_cases()]
    text = (FOLDER.parents[1] / "docs" / page).read_text("utf-8")
    table = text.partition("<!-- reports -->")[2].partition("<!-- /reports -->")[0]
    published = [
        [[int(n) for n in re.findall(r"\d+", cell)] for cell in line.split("|")[2:4]]
        for line in table.strip().splitlines()[2:]
    ]
    halves = [[row for row in results if row["half"] == half] for half in ("held-out", "tuned")]
    for column, rows in enumerate(halves):
        wrong = [row for row in rows if row["expected"] == "different"]
        found = [row for row in wrong if row["verdict"] == "different"]
        others = [row for row in rows if row["expected"] != "different"]
        named, true = (sum(row[key] for row in found) for key in ("named", "cause_right"))
        assert [line[column] for line in published[:-1]] == [
            [len(found), len(wrong)],
            [named],
            [true, int(100 * true / named)],
            [true, int(100 * true / len(wrong))],
            [sum(row["right"] for row in others), len(others)],
            [sum(row[f"wrong_{verdict}"] for row in rows) for verdict in ("equal", "different")],
        ]
