"""The finder on mistakes that no cause lists: lines of a rule, messages, weights, relations."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import finder_cases as cases
import numpy as np
import pytest
import unlisted_run
from unlisted_plants import PLANTS

from dualml.algorithms.optim import SGD, Adam, RMSprop
from dualml.algorithms.optim.base import rule_from
from dualml.common.errors import UserError
from dualml.parallel.aggregation import Ring
from dualml.parity.finder.causes.messages import changed_steps, run_schedule
from dualml.parity.finder.causes.relations import nearest_simple
from dualml.parity.finder.lines import search as lines_search
from dualml.parity.finder.lines.mutations import mutants
from dualml.parity.finder.lines.program import (
    changed_lines,
    compile_program,
    differing_lines,
    make_patch,
    read_program,
    replace_lines,
)
from dualml.parity.finder.paragraph import paragraph
from dualml.parity.finder.search import (
    HypothesisScore,
    JudgingBudget,
    rank_scores,
    read_searches,
    replay_all,
    search,
)
from dualml.parity.hypothesis import Hypothesis, Patch
from dualml.parity.search_log import SearchLog

pytestmark = pytest.mark.whole

RULES = {
    "sgd": SGD(lr=0.1),
    "nesterov": SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": Adam(lr=0.1, eps=1e-3),
    "adamw": rule_from({"name": "adamw", "lr": 0.1, "weight_decay": 0.1}),
    "rmsprop": RMSprop(lr=0.1, momentum=0.9, centered=True),
    "adagrad": rule_from({"name": "adagrad", "lr": 0.1}),
}


def inputs(rule: Any) -> tuple[Any, ...]:
    p, g, *states = np.random.default_rng(0).normal(size=(2 + len(rule.state_keys), 5))
    return p, g, {k: np.abs(a) for k, a in zip(rule.state_keys, states, strict=True)}, 3, 0.05


@pytest.mark.parametrize("name", RULES)
def test_a_program_computes_what_its_rule_does(name: str) -> None:
    rule = RULES[name]
    tree = read_program(rule)
    assert tree is not None
    with np.errstate(invalid="ignore"):
        (a, s), (b, t) = (
            rule.update_param(*inputs(rule)),
            compile_program(tree, rule)(rule, *inputs(rule)),
        )
    assert np.array_equal(a, b, equal_nan=True)
    assert all(np.array_equal(s[k], t[k], equal_nan=True) for k in rule.state_keys)


def test_a_rule_without_source_has_no_program() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Own(SGD):
        name = "own"

    Own.update_param = eval("lambda self, p, g, s, step, lr: (p, {})")
    assert read_program(Own(lr=0.1)) is None


def patched_rule(rule: Any, patch: Patch) -> Any:
    """Return `update_param` of a rule's class after a patch of its file."""
    module = sys.modules[type(rule).update_param.__module__]
    path = Path(str(module.__file__))
    assert patch.file == path.name
    place: dict[str, Any] = {"__name__": "patched_rule_of_a_test"}
    place |= {name: value for name, value in vars(module).items() if name[:2] != "__"}
    tree = ast.parse(patch.apply(path.read_text("utf-8")))
    (owner,) = (n for n in tree.body if getattr(n, "name", None) == patch.target)
    owner.decorator_list = []  # type: ignore[attr-defined]
    owner.body = [n for n in owner.body if getattr(n, "name", None) == "update_param"]  # type: ignore[attr-defined]
    exec(compile(ast.Module([owner], []), patch.file, "exec"), place)
    return place[patch.target].update_param


@pytest.mark.parametrize("name", RULES)
def test_a_changed_program_is_told_by_its_lines(name: str) -> None:
    rule = RULES[name]
    right = read_program(rule)
    assert right is not None
    before = ast.unparse(right)
    told = 0
    for mutant in list(mutants(right, rule, False))[::17]:
        line, instead = changed_lines(right, mutant.tree)
        if not line:  # a line moved to where it was
            continue
        again = replace_lines(rule, line, instead)
        patched = patched_rule(rule, make_patch(rule, mutant.tree))
        try:
            with np.errstate(all="ignore"):
                wanted = compile_program(mutant.tree, rule)(rule, *inputs(rule))[0]
        except (NameError, TypeError):
            continue
        with np.errstate(all="ignore"):
            assert np.array_equal(again(rule, *inputs(rule))[0], wanted, equal_nan=True)
            assert np.array_equal(patched(rule, *inputs(rule))[0], wanted, equal_nan=True)
        told += 1
    assert told > 5
    assert ast.unparse(right) == before
    with pytest.raises(LookupError, match="no lines"):
        replace_lines(rule, "x = 1", "x = 2")


def test_only_what_differs_is_shown() -> None:
    assert differing_lines("a = 1\nb = 2", "a = 1\nb = 3") == ("b = 2", "b = 3")
    old, new = "return (p - lr * d, {'m': m})", "return (p - lr * d, {'m': g})"
    assert differing_lines(old, new) == ("m: m", "m: g")
    assert differing_lines("a = 1\nb = 2", "b = 2\na = 1") == ("…", "…")


# --- the search -----------------------------------------------------------------------------------


def judgement(cause: str, **fields: Any) -> HypothesisScore:
    return HypothesisScore(
        **{
            "cause": cause,
            "detail": {},
            "score": 1.0,
            "fits": [1, 2],
            "disturbing": False,
            "fitted": 0,
            "cost": 0,
            **fields,
        }
    )


class Host:
    """A host without an experiment: of a to d, `computable` can be judged, `fitting` fits."""

    computable, fitting = "acd", ""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def propose(self, log: SearchLog, source: str) -> tuple[Hypothesis, ...]:
        names = "abcd" if source == "known" else "z"
        return tuple(Hypothesis(name, detail={"n": (1, float("nan"))}) for name in names)

    def evaluate(self, log: SearchLog, guess: Hypothesis) -> HypothesisScore | None:
        self.judged.append(guess.cause)
        fits = [1, 2] if guess.cause in self.fitting else []
        told = judgement(guess.cause, cost=ord("z") - ord(guess.cause), fits=fits)
        return told if guess.cause in self.computable else None


def searched(host: Host, hypotheses: int = 9) -> tuple[list[str], SearchLog]:
    ranked, log = search(host, JudgingBudget(hypotheses), host.evaluate)
    return [one.cause for one in ranked], log


def test_a_search_judges_as_many_hypotheses_of_a_source_as_its_budget_allows() -> None:
    host = Host()
    assert searched(host, 2)[0] == ["c", "a"]
    assert host.judged == ["a", "b", "c", "z"]


def test_hypotheses_that_take_longer_are_judged_only_if_no_other_fits() -> None:
    host = Host()
    host.fitting = "d"
    assert searched(host)[0][0] == "d"
    assert host.judged == list("abcd")
    assert "z" not in host.judged


def test_a_log_gives_the_same_ranking_without_judging_anything(tmp_path: Path) -> None:
    path, first, second = tmp_path / "search.jsonl", Host(), Host()
    second.computable = "bz"
    rankings, logs = zip(*map(searched, (first, second)), strict=True)
    SearchLog([one for log in logs for one in log.exchanges]).write(path)
    for line in path.read_text("utf-8").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    judged = [*first.judged, *second.judged]
    again = replay_all(read_searches(path))
    assert [[one.cause for one in ranked] for ranked in again] == list(rankings)
    assert judged == [*first.judged, *second.judged]


def test_a_log_of_another_search_is_refused(tmp_path: Path) -> None:
    path, (_, log) = tmp_path / "search.jsonl", searched(Host())
    at = next(n for n, one in enumerate(log.exchanges) if one.kind == "evaluate")
    log.exchanges[at] = replace(log.exchanges[at], question=(Hypothesis("other"),))
    log.write(path)
    with pytest.raises(UserError, match="in its log"):
        replay_all(read_searches(path))
    SearchLog().write(path)
    assert not path.exists()
    path.write_text("{}\n")
    with pytest.raises(UserError, match="not the log"):
        read_searches(path)


def test_a_long_rule_is_not_searched_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(lines_search, "try_change", lambda mutant, *rest: tried.append(mutant))
    monkeypatch.setattr(lines_search, "MAX_MUTANTS", 10)
    rule = RULES["adam"]
    base = lines_search.TriedProgram(read_program(rule), 0, frozenset(), 1.0)
    assert lines_search.try_all(base, rule, [], scheduled=False) == []
    assert len(tried) == 10


def test_what_explains_every_update_comes_first() -> None:
    log = [
        judgement("near", score=0.9999, fits=[]),
        judgement("fitted", fitted=1),
        judgement("some", disturbing=True),
        judgement("line", cost=1),
        judgement("plain", score=0.95),
        judgement("nothing", score=0.0, fits=[]),
    ]
    ranked = [one.cause for one in rank_scores(log)]
    assert ranked == ["plain", "line", "fitted", "some", "near"]


def test_two_names_of_one_rule_are_one_cause() -> None:
    log = [judgement("line", cost=1, digest="x"), judgement("known", digest="x")]
    assert [one.cause for one in rank_scores(log)] == ["known"]


# --- messages, numbers ----------------------------------------------------------------------------


def test_a_schedule_leaves_the_sum_on_every_rank() -> None:
    vectors = list(np.random.default_rng(0).normal(size=(3, 7)))
    right = run_schedule(Ring().schedule(3), vectors)
    assert all(np.allclose(held, sum(vectors)) for held in right)
    steps = Ring().schedule(3).steps
    changes = list(changed_steps(steps, 3))
    assert {name for name, *_ in changes} >= {"left out", "repeated", "replaces", "added"}
    assert all(made != steps for *_, made in changes)


@pytest.mark.parametrize(
    ("number", "meant"), [(0.333333, 1 / 3), (2.00001, 2.0), (0.9998, 0.9998), (0.0, 0.0)]
)
def test_a_fitted_number_means_a_simple_one_if_it_is_near(number: float, meant: float) -> None:
    assert nearest_simple(number) == meant


# --- plants ---------------------------------------------------------------------------------------

#: A plant of each kind, of the half that may be looked at.
SOME = (
    "decay-after-step",
    "nesterov-roles-swapped",
    "first-weight-twice",
    "uneven-parts-averaged-alike",
    "ring-step-replaces",
    "class-three-twice",
)


@pytest.mark.parametrize("name", SOME)
def test_a_mistake_that_nobody_listed_is_found(name: str) -> None:
    plant = PLANTS[name]
    assert plant.half == "known"
    verdict, found = unlisted_run.judge(plant)
    assert verdict == "right", unlisted_run.line(plant, verdict, found)
    assert found["causes"][0]["fits"] == found["first_steps"]
    for lang in ("en", "zh"):
        text = paragraph({**found, "arm": plant.arm, "seed": 0, "a": "torch", "b": "numpy"}, lang)
        assert not {"{", "}"} & set(text)


def test_what_only_one_update_shows_is_said() -> None:
    told = cases.finding("stepwise", {"torch": PLANTS["second-update-skipped"].fault})
    assert told["causes"][0]["fits"] == [2]
    assert "only in updates 2" in paragraph(told)
    assert "仅在第 2 次更新" in paragraph(told, "zh")


def test_the_plants_are_halved_by_their_names() -> None:
    halves = [plant.half for plant in PLANTS.values()]
    assert len(halves) >= 80
    assert abs(halves.count("known") - halves.count("held-out")) < 10
