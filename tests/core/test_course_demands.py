"""Everything that a task page demands, forbids or promises is looked at by a requirement.

``demands.toml`` beside the pages says by which, sentence by sentence, in both languages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from dualml.common.words import LANGUAGES
from dualml.course.labs import LABS, load_lab
from dualml.course.workspace import read_page, task_names, task_stem

#: Words of sentences that demand, forbid or promise something.
DEMANDS = {
    "en": re.compile(
        r"\b(must|may not|may be changed|only then may"
        r"|[Nn]one of|[Nn]o two|[Nn]o processes|[Nn]o others"
        r"|has to|have to|had to|is to|are to|is wanted|wants|never|[Dd]o not|not allowed"
        r"|nothing else|on every rank|every rank|all ranks|each rank|every sample|in every|in place"
        r"|left as|leaves the|keeps its part|unchanged|replaces|equally|independently|by itself"
        r"|differ by|at most|exactly|once|anew|disjoint|the same on)\b"
    ),
    "zh": re.compile(
        r"必须|不得|不能|不要|不允许|应保持|应得到|应在|应先|只能|只有|至多|最多|恰好|不改变|不改动|保持|原样"
        r"|要由|都要|要与|要对|要求|每个 rank|所有 rank|各自做|等可能|互不相交|只分发一次"
        r"|只反向传播一次|重新抽取|都不同|都相同|就地|替换"
    ),
}
#: Beginning of a row about a method of the communicator, which holds what the row says.
METHOD = re.compile(
    r"`(?:comm\.)?(?:(?:all_|reduce_)?(?:reduce|gather|scatter|to_all)|broadcast|exchange|barrier)\("
)
#: Reasons why a sentence with such words needs no requirement.
REASONS = {
    "context": "it says what the exercise is about or what is given",
    "framework": "it is a fact about the framework",
    "allowed": "it permits something",
    "static": "`dualml.course.source.examine` finds it without running the file",
    "communicator": "the communicator holds it, whatever a student does",
    "sandbox": "the isolation of a student's processes holds it",
    "judge": "it says how the judge works, which tests of the judge hold",
}
#: Demands that nothing looks at, task → number. A new requirement makes it smaller, never larger.
GAPS: dict[str, int] = {"checkpoint": 1}
TASKS = [(lab, task) for lab in LABS for task in task_names(load_lab(lab).files)]
Entry = Mapping[str, Any]


def split_page(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the sentences and the rows of tables of a page, each with whether it is a row; titles,
    heads of tables and code are left out."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines and lines[0].lstrip().startswith("|"):
            for line in lines[2:]:
                if not re.fullmatch(r"[|\-: ]+", line.strip()):
                    yield True, " | ".join(c.strip() for c in line.strip().strip("|").split("|"))
            continue
        for item in re.split(r"\n(?=\s*(?:- |\d+\. ))", "\n".join(lines)):
            whole = " ".join(item.split())
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*(θΣ\"])|(?<=[。！？])", whole):
                if sentence.strip():
                    yield False, sentence.strip()


@cache
def requirement_names(lab: str, task: str) -> frozenset[str]:
    """Return the names of a task's requirements, in both frameworks."""
    every = [f for f in load_lab(lab).files if task_stem(f) == task]
    return frozenset(r.name for f in every for r in f.requirements)


@cache
def read_demands(lab: str) -> Mapping[str, list[Entry]]:
    """Return task → entries of a lab's ``demands.toml``."""
    text = (files("dualml.course") / "pages" / lab / "demands.toml").read_text("utf-8")
    return tomllib.loads(text)


def entries_of(lab: str, task: str) -> list[Entry]:
    return list(read_demands(lab).get(task, []))


def names_in(row: str, names: frozenset[str]) -> set[str]:
    """Return the requirements in the first cell of a row."""
    return set(re.findall(r"`([^`]+)`", row.partition(" | ")[0])) & names


def demanding_units(lab: str, task: str, lang: str) -> list[str]:
    """Return the demanding sentences and rows of a page, without the table of requirements."""
    names = requirement_names(lab, task)
    return [
        text
        for is_row, text in split_page(read_page(lab, task, lang))
        if DEMANDS[lang].search(text)
        and not (is_row and (names_in(text, names) or METHOD.match(text)))
    ]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("lab", "task"), TASKS)
def test_every_demand_of_a_page_names_what_looks_at_it(lab: str, task: str, lang: str) -> None:
    known = [entry[lang] for entry in entries_of(lab, task)]
    loose = [u for u in demanding_units(lab, task, lang) if not any(part in u for part in known)]
    assert loose == [], "add them to demands.toml, or a requirement to the exercise"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("lab", "task"), TASKS)
def test_every_entry_is_on_the_page(lab: str, task: str, lang: str) -> None:
    units = [text for _, text in split_page(read_page(lab, task, lang))]
    lost = [e[lang] for e in entries_of(lab, task) if not any(e[lang] in u for u in units)]
    assert lost == []


@pytest.mark.parametrize(("lab", "task"), TASKS)
def test_an_entry_names_requirements_that_exist_or_a_reason(lab: str, task: str) -> None:
    names = requirement_names(lab, task)
    for entry in entries_of(lab, task):
        assert entry.keys() <= {"en", "zh", "by", "why", "gap"}
        assert ("why" in entry) != ("by" in entry or "gap" in entry), entry["en"]
        assert set(entry.get("by", ())) <= names, entry["en"]
        assert entry.get("why", "context") in REASONS, entry["en"]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("lab", "task"), TASKS)
def test_every_requirement_is_demanded_by_a_row_and_by_a_sentence(
    lab: str, task: str, lang: str
) -> None:
    names = requirement_names(lab, task)
    rows = [text for is_row, text in split_page(read_page(lab, task, lang)) if is_row]
    assert set().union(*(names_in(row, names) for row in rows)) == names


def test_the_known_gaps_become_fewer_and_no_more() -> None:
    counted = {task: sum("gap" in entry for entry in entries_of(lab, task)) for lab, task in TASKS}
    assert {task: n for task, n in counted.items() if n} == GAPS


def test_a_demand_that_nothing_looks_at_is_found() -> None:
    table = "| a | must |\n|---|---|\n| `x` | exactly 3 |\n"
    page = f"# Title\n\nThe tensor must stay.\nIt is blue.\n\n{table}"
    found = [text for _, text in split_page(page) if DEMANDS["en"].search(text)]
    assert found == ["The tensor must stay.", "`x` | exactly 3"]
    assert [is_row for is_row, _ in split_page(page)] == [False, False, True]
