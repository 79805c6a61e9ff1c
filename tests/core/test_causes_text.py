"""The finder's messages for its causes: exactly one table for each cause that a hypothesis can
name."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from dualml.common.words import load_messages, section_messages
from dualml.parity import finder
from dualml.parity.diffs.load import catalogue
from dualml.parity.diffs.lookup import entries_by_finding

FOLDER = Path(finder.__file__).parent
#: All causes that have messages.
CAUSES = list(dict.fromkeys(key.rpartition(".")[0] for key in section_messages("en", "cause")))
#: Function → index of the argument that is the cause.
MAKERS = {
    "Hypothesis": 0,
    "scaled_tensors": 1,
    "fit_group_weights": 1,
    "both_phases": 1,
    "changed_update": 1,
}
#: A cause and the keys of its detail; None if they are not at the same place.
Named = tuple[str, set[str] | None]
by_cause = pytest.mark.parametrize("cause", CAUSES)


def words(node: ast.expr) -> list[str]:
    """Return the causes that an expression can evaluate to; a name is followed to its
    assignments."""
    if isinstance(node, ast.IfExp):
        return words(node.body) + words(node.orelse)
    if isinstance(node, ast.Name):
        return []
    assert isinstance(node, ast.Constant), f"line {node.lineno}: cannot tell which cause this is"
    return [node.value]


def keys(node: ast.expr | None) -> set[str] | None:
    if not isinstance(node, ast.Dict):
        return None
    return {key.value for key in node.keys if isinstance(key, ast.Constant)}


def causes_in_call(node: ast.Call, maker: str) -> Iterator[Named]:
    """Yield the causes of ``Hypothesis(cause, predict, detail)`` and of functions that make one."""
    detail = {"scaled_tensors": {"factor"}, "Hypothesis": set[str]()}.get(maker)
    if maker == "Hypothesis" and len(node.args) > 2:
        detail = keys(node.args[2])
    yield from ((cause, detail) for cause in words(node.args[MAKERS[maker]]))


def named_causes(tree: ast.AST) -> Iterator[Named]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=maker)) if maker in MAKERS:
                yield from causes_in_call(node, maker)
            case ast.Tuple(elts=[ast.Constant() | ast.IfExp() as first, *_, ast.Dict() as detail]):
                yield from ((cause, keys(detail)) for cause in words(first))  # (cause, …, detail)
            case ast.Tuple(elts=[_, ast.Dict() as detail, ast.Constant(value=str(cause)), _]):
                yield cause, keys(detail)  # (weights, detail, cause, …)
            case ast.Yield(ast.Tuple(elts=[ast.Constant(value=str(cause)), _, ast.Name()])):
                yield cause, None  # (cause, …, detail)
            case ast.Assign(targets=[ast.Name(id="cause")], value=value):
                yield from ((cause, None) for cause in words(value))


NAMED = [
    one
    for path in sorted((FOLDER / "causes").glob("*.py"))
    for one in named_causes(ast.parse(path.read_text("utf-8")))
]


def placeholders(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def test_every_cause_has_its_words_and_no_other() -> None:
    found = {cause for cause, _ in NAMED}
    assert (found - set(CAUSES), set(CAUSES) - found) == (set(), set())


@by_cause
def test_words_are_in_both_languages(cause: str) -> None:
    for field in ("says", "remedy"):
        en, zh = (load_messages(lang)[f"cause.{cause}.{field}"] for lang in ("en", "zh"))
        assert re.search(r"[\u4e00-\u9fff]", zh), field
        assert not re.search(r"[\u3000-\u9fff\uff00-\uffef]", en), field
        assert placeholders(en) == placeholders(zh), field
        assert not en.endswith("."), field
        assert not zh.endswith("。"), field


@by_cause
def test_every_guess_has_the_numbers_that_are_told(cause: str) -> None:
    told = set(placeholders(load_messages("en")[f"cause.{cause}.says"]))
    assert placeholders(load_messages("en")[f"cause.{cause}.remedy"]) == []
    for name, detail in NAMED:
        if name == cause and detail is not None:
            assert told <= detail, detail


def test_entries_are_in_the_catalogue() -> None:
    assert set(entries_by_finding()) <= set(CAUSES)
    assert {name for about in entries_by_finding().values() for name in about} <= set(catalogue())
