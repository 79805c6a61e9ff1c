"""A check says how numbers that no typical mistake explains are related to the right ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, Messages, load_messages
from dualml.course.check import CheckResult
from dualml.course.computed import draw_array
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.grading.pages import explanation_blocks
from dualml.course.grading.tables import explanation_text
from dualml.course.judge import Judgement, judge
from dualml.course.labs import find_exercise
from dualml.course.rendering import result_as_json, result_lines

EXERCISE = find_exercise("optim_torch")[1]
RANKS, STEPS = 3, 3


@dataclass
class Walk(Requirement):
    """An exercise in which w moves by the sum of g over the ranks, and twin by g, in update t
    2t − 1 times as far as in the first."""

    name: str = "walk"
    target: str = "walk"

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        arrays: list[Arrays] = [
            {"p/w": draw_array(draw, 2, 3), "p/twin": draw_array(draw, 4), "g": draw_array(draw)}
            for _ in range(RANKS)
        ]
        for own in arrays[1:]:
            own["p/w"][...] = arrays[0]["p/w"]  # type: ignore[index]
        return [ExerciseCall("walk", "walk", {"micro_batches": 5}, arrays)]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        moved = np.linspace(1, 2, 6).reshape(2, 3) * sum(float(a["g"]) for a in call.arrays)
        out = []
        for own in call.arrays:
            found: dict[str, Any] = {}
            for step in range(1, STEPS + 1):
                found[f"{step}/w"] = own["p/w"] + step**2 * moved
                found[f"{step}/twin"] = own["p/twin"] + step**2 * np.arange(1.0, 5) * own["g"]
            out.append(found)
        return out

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        return [dict.fromkeys(own, np.float64(1e-6)) for own in self.expected(call)]

    def inputs(self, call: ExerciseCall, difference: Any) -> dict[str, Any]:
        return {"g": 0.5}


Change = Callable[[list[dict[str, Any]], ExerciseCall], None]


def judged(change: Change) -> Judgement:
    walk = Walk()
    calls = walk.calls(np.random.default_rng(5))
    arrays = [dict(own) for own in walk.expected(calls[0])]
    change(arrays, calls[0])
    return judge(walk, calls, [Answer(arrays)])


def names(change: Change) -> list[str]:
    return [relation.name for relation in judged(change).relations]


def update(make: Callable[[Any, Any], Any], key: str = "w", rank: int = 1) -> Change:
    """Return a change of a rank's second update: ``make`` computes the result from the right one
    and the one before."""

    def change(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        own = arrays[rank]
        own[f"2/{key}"] = make(own[f"2/{key}"], own[f"1/{key}"])

    return change


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (update(lambda right, before: before), "unmoved"),
        (update(lambda right, before: right * 0), "zero"),
        (update(lambda right, before: right * np.nan), "not_finite"),
        (update(lambda right, before: 2 * before - right), "opposite"),
        (update(lambda right, before: before + 2 * (right - before)), "twice"),
        (update(lambda right, before: before + (right - before) / 2), "half"),
        (update(lambda right, before: before + 3 * (right - before)), "times_ranks"),
        (update(lambda right, before: before + (right - before) / 3), "share_ranks"),
        (update(lambda right, before: before + (right - before) * 5), "times_parts"),
        (update(lambda right, before: before + (right - before) / 5), "share_parts"),
        (update(lambda right, before: before + (right - before) * 1.37), "times"),
        (update(lambda right, before: right + 0.25), "shifted"),
        (update(lambda right, before: before + (right - before) * 8 / 3), "other_step"),
        (update(lambda right, before: right.T.copy()), "transposed"),
        (update(lambda right, before: right.reshape(3, 2)), "reshaped"),
        (update(lambda right, before: np.concatenate([right] * 3)), "too_many"),
    ],
)
def test_a_simple_relation_is_seen(change: Change, name: str) -> None:
    assert name in names(change)[:1]


def test_numbers_of_another_rank_and_of_an_argument_are_seen() -> None:
    def of_rank_2(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        arrays[1]["2/twin"] = arrays[2]["2/twin"]

    def argument(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        arrays[1]["2/twin"] = call.arrays[1]["p/twin"]

    def argument_of_rank_0(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        arrays[1]["2/twin"] = call.arrays[0]["p/twin"]

    assert names(of_rank_2)[0] == "other_rank"
    assert names(argument)[0] == "given"
    assert names(argument_of_rank_0)[0] == "given_other"


def test_an_array_in_the_place_of_another_is_seen_whatever_its_shape() -> None:
    def exchange(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        arrays[1]["2/w"] = arrays[1]["2/twin"]

    (relation, *_) = judged(exchange).relations
    assert (relation.name, relation.values) == ("other_array", {"key": "2/twin"})


def test_noise_has_no_relation_but_a_place() -> None:
    def noise(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        arrays[1]["2/w"] = arrays[1]["2/w"] + np.array([[0, 0.3, 0], [0.7, 0, 0]])

    found = judged(noise).relations
    assert [r.name for r in found] == ["right_ranks", "right_arrays", "wrong_elements"]
    assert all(r.is_extent for r in found)
    ranks, arrays, elements = (r.values for r in found)
    assert (ranks["ranks"], arrays["keys"]) == ([0, 2], ["2/twin"])
    assert (elements["count"], elements["size"]) == (2, 6)
    assert (elements["first"], elements["last"]) == ([0, 1], [1, 0])


def test_a_named_mistake_has_no_relations() -> None:
    """A relation is a substitute for a name."""

    class Named(Walk):
        flags = ("undone",)

        def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
            right = super().expected(call)
            return [{k: -a for k, a in own.items()} for own in right] if flags else right

    named = Named()
    calls = named.calls(np.random.default_rng(5))
    judgement = judge(named, calls, [Answer(named.expected(calls[0], frozenset({"undone"})))])
    assert (judgement.mistakes, judgement.relations) == (("undone",), ())


def shown(judgements: Sequence[Judgement], lang: str = "en") -> str:
    checked = CheckResult(EXERCISE, Path("f.py"), [], judgements, 1)
    return "\n".join(result_lines(checked, 1, Messages(lang)))


def test_an_unnamed_mistake_is_described_once() -> None:
    judgement = judged(update(lambda right, before: before + 2 * (right - before)))
    text = shown([judgement, judgement])
    assert text.count("twice the right one") == 1
    assert text.count("computed from") == 1
    assert text.count("see walk") == 1
    other = judged(update(lambda right, before: 2 * before - right))
    assert "opposite sign" in shown([judgement, other])


def test_a_wrong_shape_is_said_as_a_shape_and_nobody_computes_it_by_hand() -> None:
    text = shown([judged(update(lambda right, before: right.T.copy()))])
    said = "w after update 2 on rank 1 has the shape (3, 2); by the rule it has the shape (2, 3)"
    assert said in text
    assert "by hand" not in text

    def lose(arrays: list[dict[str, Any]], call: ExerciseCall) -> None:
        del arrays[1]["2/w"]

    assert "w after update 2 on rank 1 is missing" in shown([judged(lose)])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_is_handed_out_says_the_same(lang: str) -> None:
    """The texts of graded submissions have the numbers and relations of the terminal."""
    words = Messages(lang)
    judgement = judged(update(lambda right, before: before + 2 * (right - before)))
    checked = CheckResult(EXERCISE, Path("f.py"), [], [judgement], 1)
    (entry,) = result_as_json(checked, 3, words)["requirements"]
    text = explanation_text({**entry, "spared": ""}, words)
    assert words("course.made_of", values="g = 0.5") in text
    assert words("course.relation.twice", subject=words("course.subject.change")) in text
    assert words("course.unknown") in text


def make_judgement(name: str, *mistakes: str) -> Judgement:
    """Return the judgement of a requirement in which these mistakes were found."""
    (requirement,) = (r for r in EXERCISE.requirements if r.name == name)
    call = requirement.calls(np.random.default_rng(1))[0]
    difference = Difference(0, "1/weight", (0, 0), 1.0, 2.0)
    return Judgement(requirement, "not met", None, call, difference, mistakes)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_symptom_beside_another_mistake_is_said_to_be_of_it_alone(lang: str) -> None:
    """A number that one mistake leaves right may be wrong by another one."""
    words = Messages(lang)
    label, alone = words("course.depth.symptom"), words("course.symptom_alone")
    one = [make_judgement("sgd.momentum", "aliased"), make_judgement("sgd.nesterov", "aliased")]
    assert (shown(one, lang).count(label), shown(one, lang).count(alone)) == (1, 0)
    other_class = [make_judgement("gd.update", "sign"), make_judgement("sgd.momentum", "aliased")]
    assert shown(other_class, lang).count(label) == 2
    for several in (
        [make_judgement("sgd.momentum", "aliased", "dampened")],
        [make_judgement("sgd.momentum", "aliased"), make_judgement("sgd.decay", "decay_sign")],
        [make_judgement("sgd.momentum", "aliased"), make_judgement("sgd.decay")],
    ):
        text = shown(several, lang)
        assert text.count(alone) == text.count(words("course.depth.place")) > 0


def test_no_symptom_says_that_all_numbers_are_right() -> None:
    """It would be printed beside a wrong one."""
    for key, text in load_messages("en").items():
        if key.startswith("mistake.") and key.endswith(".symptom"):
            assert "All numbers are right" not in text, key


def test_a_page_describes_an_unnamed_mistake_once() -> None:
    words = Messages("en")
    judgement = judged(update(lambda right, before: before + 2 * (right - before)))
    checked = CheckResult(EXERCISE, Path("f.py"), [], [judgement, judgement], 1)
    entries = [{**e, "spared": ""} for e in result_as_json(checked, 3, words)["requirements"]]
    told: dict[str, str] = {}
    texts = [str(list(explanation_blocks(entry, words, told))) for entry in entries]
    assert ["twice the right one" in text for text in texts] == [True, False]
    assert "see walk" in texts[1]
