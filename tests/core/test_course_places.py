"""A mistake at one place: it acts there alone, is found there, and is said so."""

import numpy as np
import pytest

from dualml.common.words import Messages
from dualml.course.exercise import Answer
from dualml.course.judge import judge
from dualml.course.lab2 import rules
from dualml.course.lab2.requirements import requirements
from dualml.course.places import flags_at, parse_place, place_flags, split_flag
from dualml.course.rendering import explain_mistake

SUM = next(r for r in requirements() if r.name == "reduce.uneven")


def test_a_flag_acts_where_its_conditions_hold():
    flags = frozenset({"everywhere", "first@rank=0", "rest@rank=!0", "last@rank=-1&step=1"})
    assert flags_at(flags, rank=(0, 3)) == {"everywhere", "first"}
    assert flags_at(flags, rank=(2, 3)) == {"everywhere", "rest", "last@step=1"}
    assert flags_at(flags, rank=(2, 3), step=(1, 2)) == {"everywhere", "rest", "last"}
    assert flags_at(flags, step=(1, 2)) == {
        "everywhere",
        "first@rank=0",
        "rest@rank=!0",
        "last@rank=-1",
    }


def test_every_mistake_is_tried_at_every_place():
    assert list(place_flags(("a", "b#2"), ("rank=0", "step=!1"))) == [
        "a@rank=0",
        "b#2@rank=0",
        "a@step=!1",
        "b#2@step=!1",
    ]
    assert split_flag("b#2@rank=0&step=1") == ("b", "rank=0&step=1")


@pytest.mark.parametrize("place", ["rank", "=1", "rank=x", "rank=!"])
def test_a_place_that_is_none(place):
    with pytest.raises(ValueError, match=r"place|invalid literal"):
        parse_place(place)


@pytest.mark.parametrize("place", SUM.places)
def test_a_mistake_at_one_place_is_named_with_it(place):
    calls = SUM.calls(np.random.default_rng(3))
    flags = frozenset({f"sum_divided_twice@{place}"})
    answers = [Answer(SUM.compute(call, flags, np.float32)) for call in calls]
    found = judge(SUM, calls, answers)
    assert found.mistakes == ("sum_divided_twice",)
    assert found.places == {"sum_divided_twice": place}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_symptom_says_where(lang):
    words = Messages(lang)
    shown = explain_mistake("sum_undivided", 3, words, {"sum_undivided": "rank=!0&tensor=-1"})
    alone = explain_mistake("sum_undivided", 3, words)
    assert shown["symptom"] != alone["symptom"]
    assert "rank 0" in shown["symptom"]
    assert shown["cause"] == alone["cause"]


def test_where_no_place_is_the_rule_is_right():
    call = SUM.calls(np.random.default_rng(1))[0]
    right, wrong = (
        rules.average_gradients(call.arrays, frozenset(flags))
        for flags in ((), ("sum_undivided@rank=5",))
    )
    for a, b in zip(right, wrong, strict=True):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
