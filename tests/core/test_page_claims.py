"""Claims of the pages that the program can check: what --quick runs, and what a method supports."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dualml.course.catalogue import load_plants
from dualml.experiment.load import load
from dualml.experiment.methods import METHODS
from dualml.interface.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
LABS = ["lab1", "lab2", "lab3", "lab4", "rnn_ps", "memory", "methods"]
WORDS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}
NUMERALS = dict(zip("一二三四五六七八九十", range(1, 11), strict=True)) | {"两": 2}
PROCESSES = {"one": ("one", "一个"), "several": ("several", "多个"), "any": ("any", "任意")}


def quick_comment(lab: str, lang: str) -> str:
    """Return what a lab's page says beside its command with ``--quick``."""
    page = (ROOT / "experiments" / f"{lab}.{lang}.md").read_text("utf-8")
    match = re.search(rf"^dualml run {lab} --quick +# (.*)$", page, re.MULTILINE)
    assert match, f"{lab}.{lang}.md says nothing of --quick"
    return match[1]


def quick_groups(lab: str) -> set[str]:
    return {arm.group for arm in load(lab, quick=True).arms.values()}


def named_groups(lab: str, comment: str) -> set[str]:
    groups = {arm.group for arm in load(lab, arms=["all"]).arms.values()} - {"main"}
    return {group for group in groups if re.search(rf"\b{group}\b", comment)}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("lab", LABS)
def test_groups_that_a_page_names_are_those_that_quick_runs(lab: str, lang: str) -> None:
    named = named_groups(lab, quick_comment(lab, lang))
    assert named in (set(), quick_groups(lab))


def test_a_group_that_quick_does_not_run_is_noticed() -> None:
    assert named_groups("rnn_ps", "groups placement and tables") == {"placement", "tables"}
    assert quick_groups("rnn_ps") != {"placement", "tables"}


def test_numbers_of_groups_and_ranks_are_those_of_quick() -> None:
    counted = re.search(r"arms of (\w+) groups", quick_comment("lab4", "en"))
    assert counted is not None
    assert NUMBERS[counted[1]] == len(quick_groups("lab4"))
    for lab in ("lab2", "lab3"):
        ranks = re.search(r"(\w+) ranks", quick_comment(lab, "en"))
        assert ranks is not None
        most = max(arm.world_size for arm in load(lab, quick=True).arms.values())
        assert NUMBERS[ranks[1]] == most


@pytest.mark.parametrize("lab", LABS)
def test_show_has_the_arms_that_run_has(lab: str) -> None:
    answer = CliRunner().invoke(app, ["show", lab, "--quick", "--json"])
    assert answer.exit_code == 0, answer.output
    assert list(json.loads(answer.stdout)["arms"]) == list(load(lab, quick=True).arms)


@pytest.mark.parametrize(
    ("page", "pattern", "numbers"),
    [
        ("methods.md", r"`--quick`, (\w+) arms on ([\d,]+) sentences with (\w+) seed", NUMBERS),
        ("methods.zh.md", r"`--quick` 用(\w)个种子在 ([\d,]+) 句上运行(\w)个方案", NUMERALS),
    ],
)
def test_the_numbers_of_the_quick_table_of_methods(
    page: str, pattern: str, numbers: dict[str, int]
) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    match = re.search(pattern, text)
    assert match, "the page does not say what --quick runs"
    arms, seeds = (match[1], match[3]) if page == "methods.md" else (match[3], match[1])
    quick = load("methods", quick=True)
    said = (numbers[arms], int(match[2].replace(",", "")), numbers[seeds])
    assert said == (len(quick.arms), quick.data.train, len(quick.seeds))


@pytest.mark.parametrize(("page", "word"), [("methods.md", 0), ("methods.zh.md", 1)])
def test_the_table_has_every_method_and_its_number_of_processes(page: str, word: int) -> None:
    frameworks = {"PyTorch": ["torch"], "MindSpore": ["mindspore"]}
    seen: dict[tuple[str, str], str] = {}
    for line in (ROOT / "docs" / page).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        for backend in frameworks.get(cells[1], ["torch", "mindspore"]):
            for name in re.findall(r"`(\w+)`", cells[0]):
                seen.setdefault((backend, name), cells[2])
    for backend, methods in METHODS.items():
        for name, info in methods.items():
            assert (backend, name) in seen, f"{page} does not list {name} of {backend}"
            if not info.unsupported:
                assert seen[backend, name] == PROCESSES[info.ranks][word], (backend, name)


@pytest.mark.parametrize("page", ["benchmarks-robustness.md", "benchmarks-robustness.zh.md"])
def test_the_table_of_mistakes_is_of_the_committed_results_and_of_todays_catalogue(
    page: str,
) -> None:
    results = json.loads((ROOT / "benchmarks" / "course.json").read_text("utf-8"))
    counts = {
        lab: len({plant.name for plant in load_plants(lab) if not plant.right}) for lab in results
    }
    assert counts == {lab: row["mistakes"] for lab, row in results.items()}
    text = (ROOT / "docs" / page).read_text("utf-8")
    for lab, row in results.items():
        assert f"| `{lab}` | {' | '.join(map(str, row.values()))} |\n" in text
    total = [
        f"{sum(column):,}" for column in zip(*(r.values() for r in results.values()), strict=True)
    ]
    assert f" | {' | '.join(total)} |\n" in text


def test_what_was_not_run_on_a_gpu_is_not_claimed() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "classifiers"
    ]
    measured = "Nothing was run" not in (ROOT / "docs" / "gpu.md").read_text("utf-8")
    assert measured == any("CUDA" in each for each in classifiers)


def refusal_reasons() -> dict[str, str]:
    """Return the reason of each `not comparable` in the code → the key of its message."""
    patterns = (
        r'not_comparable\(\s*"(\w+)"',
        r'"not comparable", "(\w+)"',
        r'verdict="not comparable", reason="(\w+)"',
        r'replace\(c, reason="(\w+)"',
    )
    keys = {"both_nan": "first.both_nan"}
    found: dict[str, str] = {}
    for path in sorted((ROOT / "dualml" / "parity").rglob("*.py")):
        code = path.read_text("utf-8")
        for pattern in patterns:
            for reason in re.findall(pattern, code):
                found[reason] = keys.get(reason, f"reason.{reason}")
    return found


def refusal_messages(lang: str) -> set[str]:
    """Return the texts of these reasons, of models and of trials, without a final full stop."""
    folder = ROOT / "dualml" / "common" / "words" / lang
    models = tomllib.loads((folder / "models.toml").read_text("utf-8"))["models"]
    trials = tomllib.loads((folder / "common.toml").read_text("utf-8"))["reason"]
    texts = set()
    for reason, key in refusal_reasons().items():
        assert key in models or reason in trials, reason
        texts |= {table[name] for table, name in ((models, key), (trials, reason)) if name in table}
    return {text.rstrip(".。") for text in texts}


@pytest.mark.parametrize(("page", "lang"), [("models.md", "en"), ("models.zh.md", "zh")])
def test_every_reason_not_to_compare_has_a_remedy(page: str, lang: str) -> None:
    assert {"both_nan", "chaotic", "free_order", "lacks_operator"} < set(refusal_reasons())
    text = (ROOT / "docs" / page).read_text("utf-8")
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.M))
    for message in refusal_messages(lang):
        assert rows.get(message), message


@pytest.mark.parametrize("page", ["versions.md", "versions.zh.md"])
def test_the_supported_versions_are_those_of_the_metadata(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    rows = re.findall(r"^\| (Python|PyTorch|MindSpore) \| (.*) \|$", text_of(page), re.M)
    assert dict(rows)["Python"].startswith(project["requires-python"].removeprefix(">="))
    for name, extra in (("PyTorch", "torch"), ("MindSpore", "mindspore")):
        (wanted,) = [each for each in extras[extra] if each.startswith(f"{extra}>=")]
        asked = wanted.partition(";")[0].removeprefix(extra)
        assert f"`{asked}`" in dict(rows)[name]


def text_of(page: str) -> str:
    """Return the text of a page of the documentation."""
    return (ROOT / "docs" / page).read_text("utf-8")
