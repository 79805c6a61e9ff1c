"""The finder's messages for its causes: exactly one table for each cause that a hypothesis can
name."""

from __future__ import annotations

import ast
import re
import string
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from dualml.common.words import LANGUAGES, load_messages, section_messages
from dualml.parity import finder
from dualml.parity.causes.mutation import Mutation
from dualml.parity.diffs.load import catalogue
from dualml.parity.diffs.lookup import entries_by_finding
from dualml.parity.hypothesis import DEPTHS, Hypothesis, load_families
from dualml.parity.models.sentences import make_hypothesis

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


@pytest.mark.parametrize("lang", LANGUAGES)
@by_cause
def test_a_cause_has_words_at_every_depth(cause: str, lang: str) -> None:
    check_depths(Hypothesis(cause), lang)


def check_depths(one: Hypothesis, lang: str) -> None:
    """Check that a hypothesis has four different sentences, of which only the cause has numbers."""
    said = [one.words(lang, depth) for depth in DEPTHS]
    assert all(said), one.cause
    assert len(set(said)) == len(DEPTHS), one.cause
    assert not any(placeholders(text) for text in said[:-1])


MUTATIONS = [
    Mutation("attribute", "set", (1,), "layer_norm", "eps", 1e-7, 1e-5),
    Mutation("attribute", "set", (1,), "batch_norm", "training", False, True),
    Mutation("attribute", "set", (1,), "conv2d", "stride", [2, 2], [1, 1]),
    Mutation("attribute", "form", (1,), "layer_norm", "eps_outside", True),
    Mutation("function", "function", (1,), "gelu", "", ("relu",)),
    Mutation("missing", "drop", (1,), "relu", 0),
    Mutation("missing", "input", (1,), "conv2d", 2, ("neutral",)),
    Mutation("extra", "output", (1,), "linear", "", ("softmax", -1)),
    Mutation("order", "swap", (1,), "relu", 0, 1),
    Mutation("layout", "output", (1,), "linear", "", ("flip", 1)),
    Mutation("operand", "exchange", (1,), "sub", "", (0, 1)),
    Mutation("constant", "output", (1,), "mul", "", ("scale", 2.0)),
    Mutation("mask", "omit", (1,), "masked_fill", 1),
    Mutation("dtype", "lower", (1,), "matmul", "", "float16"),
    Mutation("gradient", "detach", (1,), "add", ""),
    Mutation("parameters", "freeze", (), "", "", ("w",)),
    *(
        Mutation("optimizer", "optimizer", (), "None", word, 0.1)
        for word in (
            "lr_factor",
            "momentum",
            "beta1",
            "eps",
            "weight_decay",
            "form:coupled",
            "gradient:scale",
            "twice",
            "skip",
            "own:peak",
        )
    ),
    Mutation("optimizer", "line:drop", (), "sqrt", 0, None, None, "9:v.sqrt()"),
]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("one", MUTATIONS, ids=lambda one: f"{one.kind}-{one.action}")
def test_a_mutation_of_a_model_has_words_at_every_depth(one: Mutation, lang: str) -> None:
    hypothesis = make_hypothesis(asdict(one))
    check_depths(hypothesis, lang)
    assert hypothesis.family_keys[-1] == f"kind.{one.kind}"


def test_mutations_of_every_kind_are_among_them() -> None:
    kinds = {key.removeprefix("kind.") for key in load_families() if key.startswith("kind.")}
    assert kinds == {one.kind for one in MUTATIONS}
    assert kinds == kinds_in_code()


def kinds_in_code() -> set[str]:
    """Return the kinds with which the search on a model's graph makes mutations."""
    found = set()
    for path in (FOLDER.parent / "causes").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                first = node.args[0]
                if name in ("Mutation", "mutate") and isinstance(first, ast.Constant | ast.IfExp):
                    found |= set(words(first))
    return found


def test_what_both_searches_can_name_is_of_one_family() -> None:
    pairs = {
        "half-precision": MUTATIONS[13],
        "layernorm-eps": MUTATIONS[0],
        "eps-outside-root": MUTATIONS[3],
        "rearranged-tensors": MUTATIONS[9],
        "further-function": MUTATIONS[7],
        "missing-bias": MUTATIONS[6],
    }
    for cause, mutation in pairs.items():
        assert Hypothesis(cause).family == make_hypothesis(asdict(mutation)).family


def test_families_name_no_cause_that_does_not_exist() -> None:
    names = {name for name in load_families() if "." not in name}
    assert names == set(CAUSES)
    table = tomllib.loads((FOLDER.parent / "families.toml").read_text("utf-8"))
    assert sum(map(len, table.values())) == len(load_families())  # none is in two families
    for lang in LANGUAGES:
        said = {key.split(".")[0] for key in section_messages(lang, "family")}
        assert said == set(table)


def test_entries_are_in_the_catalogue() -> None:
    assert set(entries_by_finding()) <= set(CAUSES)
    assert {name for about in entries_by_finding().values() for name in about} <= set(catalogue())
