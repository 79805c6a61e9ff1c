"""Docstrings begin with a sentence that stands alone."""

from __future__ import annotations

import ast

import pytest
from language import PACKAGES, ROOT, definitions, fault_of_docstring
from source_trees import parse_source


def test_every_docstring_stands_alone() -> None:
    faults = {
        found.place: fault
        for found in definitions()
        if found.docstring and (fault := fault_of_docstring(found.docstring))
    }
    assert faults == {}


def test_every_module_says_what_it_is() -> None:
    without = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not ast.get_docstring(parse_source(path.read_text("utf-8")))
    ]
    assert without == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("What the ranks hold.", "begins with 'What'"),
        ("Of it what was seen.", "begins with 'Of'"),
        ("It, made for this model alone.", "begins with 'It'"),
        ("The same, each for itself.", "begins with 'The same'"),
        ("That trained.", "begins with 'That'"),
        ("As JSON.", "begins with 'As'"),
        ("Once more.", "begins with 'Once'"),
        ("Two words.", "has 2 words"),
        ("Return the bytes of every rank.", ""),
        ("Itemise what is held.", ""),
    ],
)
def test_what_does_not_stand_alone(text: str, fault: str) -> None:
    assert fault_of_docstring(text) == fault
