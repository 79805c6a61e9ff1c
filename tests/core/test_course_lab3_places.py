"""Mistakes of Lab 3 at one place: of one rank, one update, one tensor, one label, and at others."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dualml.course import drive_lab3
from dualml.course.exercise import Answer, Requirement
from dualml.course.judge import Judgement, judge
from dualml.course.lab3.partitioning import function_requirements
from dualml.course.lab3.share_sizes import LEAST_DEPENDENCE, MOST_DEPENDENCE, label_dependence
from dualml.course.lab3.shares import ALPHAS, LabelParts
from dualml.course.lab3.skew import skew_requirements
from dualml.course.lab3.training import training_requirements
from dualml.course.labs import find_exercise
from dualml.course.unifying import unify_mistakes
from dualml.course.workspace import read_solution

TRAINING = {r.name: r for r in training_requirements()}
DEALING = {r.name: r for r in (*function_requirements(), *skew_requirements())}
SOLUTION = read_solution(find_exercise("partition")[1])


def judged_update(requirement: Requirement, *flags: str) -> Judgement:
    """Judge the answers of a student who makes these mistakes."""
    calls = requirement.calls(np.random.default_rng(4))
    answers = [
        Answer(requirement.compute(c, frozenset(flags), np.float32))  # type: ignore[attr-defined]
        for c in calls
    ]
    return judge(requirement, calls, answers)


@pytest.mark.parametrize(
    ("name", "flag", "place"),
    [
        ("train.even", "update_divided_twice", "rank=0"),
        ("train.even", "update_local", "dim=1"),
        ("train.even", "update_local", "rank=!0"),
        ("train.uneven", "update_summed", "sender=0"),
        ("train.uneven", "update_unweighted", "step=0"),
        ("train.uneven", "update_local", "tensor=-1"),
        ("train.loss", "update_loss_local", "rank=!0"),
        ("train.loss", "update_loss_missing", "rank=!0"),
        ("train.empty", "update_loss_share", "rank=0"),
        ("train.start", "start_not_broadcast", "rank=1"),
        ("train.start", "start_other_root", "dim=1"),
    ],
)
def test_a_mistake_at_one_place_is_named_with_it(name: str, flag: str, place: str) -> None:
    found = judged_update(TRAINING[name], f"{flag}@{place}")
    assert found.mistakes == (flag,)
    assert found.places == {flag: place}


def test_weights_that_the_loss_has_in_common_are_one_mistake() -> None:
    found = judged_update(TRAINING["train.loss"], "update_wrong_total#2+loss")
    assert found.mistakes == ("update_wrong_total",)


def test_one_mistake_that_explains_all_is_named_for_all() -> None:
    flags = frozenset({"update_wrong_total#3"})  # with equal counts, the same as a plain sum
    some = [TRAINING[name] for name in ("train.even", "train.uneven", "train.adaptive")]
    answered = [
        ((r, call), Answer(r.compute(call, flags, np.float32)))  # type: ignore[attr-defined]
        for r in some
        for call in r.calls(np.random.default_rng(2))
    ]
    alone = [
        judge(r, [c for (o, c), _ in answered if o is r], [a for (o, _), a in answered if o is r])
        for r in some
    ]
    assert alone[0].mistakes == ("update_summed",)
    unified = unify_mistakes(alone, answered)
    assert {j.mistakes for j in unified} == {("update_wrong_total",)}


def judged_functions(old: str, new: str, target: str) -> set[tuple[str, ...]]:
    """Return the mistakes, with places, in a changed solution, each once; ``target`` alone."""
    assert old in SOLUTION
    student = ModuleType("submitted")
    exec(compile(SOLUTION.replace(old, new), "submitted", "exec"), student.__dict__)
    found = set()
    for r in DEALING.values():
        if r.target == target:
            calls = r.calls(np.random.default_rng(7))
            answers = [
                Answer([getattr(drive_lab3, c.kind)(student, c.target, c.options, c.arrays[0])])
                for c in calls
            ]
            judgement = judge(r, calls, answers)
            if judgement.status != "met":
                places = judgement.places
                found.add(tuple(f"{m}@{places.get(m, '')}" for m in judgement.mistakes))
    return found


ORDER = "return np.random.default_rng([seed, rank, epoch + 1]).permutation(part)"
SHARES = "shares = draw.dirichlet([alpha] * ranks)"


@pytest.mark.parametrize(
    ("target", "old", "new", "named"),
    [
        ("random_partition", ORDER, f"{ORDER} if rank else part", "deal_order_fixed@rank=0"),
        ("random_partition", ORDER, f"{ORDER} if epoch else np.sort(part)", "deal_sorted@epoch=0"),
        (
            "random_partition",
            ORDER,
            "return np.random.default_rng(epoch).permutation(part)",
            "deal_order_seedless@",
        ),
        (
            "label_skew",
            SHARES,
            f"{SHARES} if label else np.full(ranks, 1 / ranks)",
            "skew_even@label=0",
        ),
    ],
)
def test_a_mistake_in_lists_is_named_with_its_place(
    target: str, old: str, new: str, named: str
) -> None:
    assert judged_functions(old, new, target) == {(named,)}


def parts_of_shares(shares: Any) -> LabelParts:
    """Make parts with these shares, shape (seeds, labels, ranks), of α = 1."""
    parts = LabelParts(np.arange(shares.shape[1]), shares.shape[2], [], [], [], [], [], False)
    asks = [(ALPHAS[1], seed) for seed in range(len(shares))]
    object.__setattr__(parts, "asks", asks)
    parts.__dict__["label_shares"] = shares
    return parts


def test_a_remainder_that_one_rank_always_gets_is_right() -> None:
    rounded = "np.round(np.cumsum(shares)[:-1] * len(samples)).astype(int)"
    down = "np.cumsum((shares[:-1] * len(samples)).astype(int))"
    assert judged_functions(rounded, down, "label_skew") == set()


def test_dependence_of_labels_tells_the_axes_apart() -> None:
    draw = np.random.default_rng(1)
    right = [
        label_dependence(parts_of_shares(draw.dirichlet([1.0] * 4, size=(120, 5))), 1.0)
        for _ in range(400)
    ]
    # Six standard deviations: fewer than one false alarm in 10⁸.
    assert np.std(right) < (1 - LEAST_DEPENDENCE) / 5.5
    assert LEAST_DEPENDENCE < min(right) < max(right) < MOST_DEPENDENCE
    over_labels = draw.dirichlet([1.0] * 5, size=(120, 4)).transpose(0, 2, 1)
    shares = over_labels / over_labels.sum(2, keepdims=True)
    assert label_dependence(parts_of_shares(shares), 1.0) < LEAST_DEPENDENCE
