"""Names say what they hold or do, and a class name of the core means one class."""

from __future__ import annotations

from collections import Counter

import pytest
from language import PACKAGES, ROOT, RULES, Definition, definitions, definitions_in, says_nothing

EXCEPTIONS: dict[str, str] = RULES["exceptions"]
MAX_EXCEPTIONS = 20


def test_every_definition_has_a_name_that_says_something() -> None:
    nameless = {found.place for found in definitions() if says_nothing(found.name)}
    assert sorted(nameless - set(EXCEPTIONS)) == []


def test_exceptions_are_few_and_in_use() -> None:
    nameless = {found.place for found in definitions() if says_nothing(found.name)}
    assert set(EXCEPTIONS) <= nameless
    assert len(EXCEPTIONS) <= MAX_EXCEPTIONS
    assert all(len(reason.split()) > 3 for reason in EXCEPTIONS.values())


def test_a_class_name_of_the_core_means_one_class() -> None:
    classes = [found for found in definitions() if found.kind == "class"]
    count = Counter(found.name for found in classes if found.package == "dualml")
    assert {name: number for name, number in count.items() if number > 1} == {}


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("held", True),
        ("_one_by_one", True),
        ("AtOnce", True),
        ("MOST", True),
        ("referee_of_run", True),
        ("peak_memory", False),
        ("held_bytes", False),
        ("__init__", False),
        ("x", False),
    ],
)
def test_what_says_nothing(name: str, empty: bool) -> None:
    assert says_nothing(name) == empty


def test_every_kind_of_definition_is_found() -> None:
    source = (
        "A, B = 1, 2\n"
        "C: int = 3\n"
        "class D:\n"
        "    e = 4\n"
        "    def f(self):\n"
        "        def g():\n"
        "            '''Return nothing at all.'''\n"
        "if A:\n"
        "    async def h(): pass\n"
    )
    found = list(definitions_in(source, "p.py"))
    places = ["A", "B", "C", "D", "D.f", "D.f.g", "h"]
    assert [each.place for each in found] == [f"p.py:{place}" for place in places]
    assert found[5] == Definition("p.py:D.f.g", "function", "Return nothing at all.")
    assert found[5].name == "g"


def test_few_statements_are_exempt_from_the_formatter() -> None:
    exempt = [
        f"{path.relative_to(ROOT)}:{number}"
        for root in (*PACKAGES, "tests", "docs", "benchmarks")
        for path in sorted((ROOT / root).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if line.endswith("# fmt: " + "skip")
    ]
    assert 0 < len(exempt) <= 50, "\n".join(exempt)
