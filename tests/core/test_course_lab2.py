"""The exercise of Lab 2, without a framework: rules, times, catalogue, messages, pages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.clock import Clock
from dualml.course.collectives import Ask
from dualml.course.exercise import RIGHT, Answer, ExerciseCall, Requirement, Trouble
from dualml.course.judge import agrees
from dualml.course.lab2 import rules
from dualml.course.lab2.measuring import DISTURBED_S, FIRST_S, SIZES, TimingRequirement
from dualml.course.lab2.requirements import ELEMENTS, SHAPES, CollectiveRequirement, requirements
from dualml.course.lab2.rules import all_reduce_seconds
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_page, read_solution, read_translations
from dualml.parallel.aggregation import Ring

REQUIREMENTS = requirements()
TOGETHER = [r for r in REQUIREMENTS if isinstance(r, CollectiveRequirement)]
MEASURED = [r for r in REQUIREMENTS if isinstance(r, TimingRequirement)]
#: Mistakes that errors reveal, those that times reveal, and the one that a changed argument
#: reveals.
ERRORS = ("crossed", "one_sided", "other_collective", "ring_index")
TIMES = (
    "measure_milliseconds",
    "measure_elements",
    "measure_unsynchronised",
    "measure_total",
    "measure_maximum",
    "measure_mean",
    "measure_first",
)
CHANGED = "ring_in_place"
FORMS = list(dict.fromkeys(flag for r in TOGETHER for flag in r.flags))
NUMBERS = list(dict.fromkeys(flag.partition("#")[0] for flag in FORMS))


def find_requirement(name: str) -> Any:
    return next(r for r in REQUIREMENTS if r.name == name)


def drawn(requirement: Requirement) -> list[ExerciseCall]:
    return list(requirement.calls(np.random.default_rng(5)))


# --- sums --------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", TOGETHER, ids=lambda r: r.name)
def test_every_rank_has_what_plain_numpy_gives(requirement: CollectiveRequirement) -> None:
    for call in drawn(requirement):
        made = requirement.expected(call)
        assert len(made) == call.ranks
        for rank, own in enumerate(made):
            if requirement.name == "ring.traffic":
                continue
            if call.kind == "ring":
                key, right = next(iter(requirement.result_keys)), [a["t"] for a in call.arrays]
                whole = np.sum(right, axis=0, dtype=np.float64)
                np.testing.assert_allclose(own[key], whole if key == "sum" else right[rank])
                continue
            assert own.keys() == {str(i) for i in range(len(SHAPES))}
            for i, made_of_it in own.items():
                parts = [a[f"t/{i}"].astype(np.float64) for a in call.arrays]
                weights = [int(a.get("samples", 1)) for a in call.arrays]
                right = np.average(parts, axis=0, weights=weights)
                np.testing.assert_allclose(made_of_it, right, atol=1e-12)


@pytest.mark.parametrize("name", ["reduce.uneven", "gather.uneven"])
def test_no_two_ranks_have_as_many_samples(name: str) -> None:
    for call in drawn(find_requirement(name)):
        counts = [int(a["samples"]) for a in call.arrays]
        assert len(set(counts)) == call.ranks


def test_a_ring_cannot_cut_evenly() -> None:
    for call in drawn(find_requirement("ring.sum")):
        assert call.arrays[0]["t"].size % call.ranks == 1


def test_a_ring_can_have_more_ranks_than_elements() -> None:
    for call in drawn(find_requirement("ring.short")):
        assert 0 < call.arrays[0]["t"].size < call.ranks


@pytest.mark.parametrize("name", ["ring.sum", "ring.short", "ring.traffic"])
def test_a_ring_is_the_one_that_we_aggregate_with(name: str) -> None:
    for call in drawn(find_requirement(name)):
        schedule, n = Ring().schedule(call.ranks), call.ranks
        rows = [a["t"].astype(np.float64).reshape(-1) for a in call.arrays]
        length = len(rows[0])
        made = rules.ring_all_reduce(call.arrays)
        sent = [schedule.sent_volume(r, length) for r in range(n)]
        assert [int(own["messages"]) for own in made] == [messages for messages, _ in sent]
        assert sum(own["elements"] for own in made) == sum(count for _, count in sent)
        for step in schedule.steps:
            before = [row.copy() for row in rows]
            for t in step:
                part = slice(*schedule.span(t, length))
                came = before[t.source][part]
                rows[t.target][part] = rows[t.target][part] + came if t.op == "add" else came
        for own, row in zip(made, rows, strict=True):
            np.testing.assert_allclose(own["sum"].reshape(-1), row)


def test_what_a_ring_sends() -> None:
    requirement = find_requirement("ring.traffic")
    for call in drawn(requirement):
        n, size = call.ranks, call.arrays[0]["t"].size
        made = requirement.expected(call)
        assert [int(own["messages"]) for own in made] == [2 * (n - 1)] * n
        sent = np.array([own["elements"] for own in made])
        assert sent.sum() == 2 * (n - 1) * size  # a step moves every chunk once
        assert abs(sent - 2 * (n - 1) / n * size).max() < ELEMENTS
        everything = requirement.expected(call, frozenset({"ring_everything"}))
        assert [int(own["elements"]) for own in everything] == [(n - 1) * size] * n


TARGETS = list(dict.fromkeys(r.target for r in TOGETHER))


@pytest.mark.parametrize("target", TARGETS)
def test_mistakes_show_and_no_two_look_alike(target: str) -> None:
    calls = [(r, call) for r in TOGETHER if r.target == target for call in drawn(r)]
    flags = dict.fromkeys(flag for r, _ in calls for flag in r.flags)
    assert flags
    looks = {
        flag: [r.expected(call, frozenset({flag}) if flag else RIGHT) for r, call in calls]
        for flag in ("", *flags)
    }
    for one, other in combinations(looks, 2):
        assert not all(
            agrees(a, b, r.tolerance(call, frozenset({other}) if other else RIGHT))
            for a, b, (r, call) in zip(looks[one], looks[other], calls, strict=True)
        ), (one, other)


def test_a_tensor_that_is_changed_is_seen() -> None:
    requirement = find_requirement("ring.kept")
    (call,) = drawn(requirement)
    right = requirement.expected(call)
    assert requirement.problem(call, Answer(right)) is None
    changed = [{"before": a["before"] * 2} for a in right]
    found = requirement.problem(call, Answer(changed))
    assert found is not None
    assert found[1] == (CHANGED,)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("the ranks disagree on collective number 1: rank 0: all_reduce", "crossed"),
        ("rank 0 waited 5 s for all_reduce float32 () op=sum; missing: rank 1 of 2", "one_sided"),
        ("rank 0 of 2, exchange: no answer within 5 s; a rank hangs, is late", "one_sided"),
        ("exchange failed on rank 0 of 2 (a rank that ended, or one later than 5 s)", "one_sided"),
    ],
)
def test_errors_of_ranks_apart_are_named(message: str, name: str) -> None:
    trouble = Trouble("CommunicationError", message)
    for requirement in TOGETHER:
        assert requirement.mistakes_of(trouble) == (name,)


@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        ("AttributeError", "comm has no 'all_reduce' in this exercise", "other_collective"),
        ("ValueError", "rank 1 receives 4 elements from rank 0 and expects 3", "ring_index"),
        ("ValueError", "too many values to unpack", ""),
        ("AttributeError", "'list' object has no attribute 'shape'", ""),
    ],
)
def test_other_errors_are_named_by_what_they_say(kind: str, message: str, name: str) -> None:
    for requirement in TOGETHER:
        assert requirement.mistakes_of(Trouble(kind, message)) == ((name,) if name else ())


# --- times -------------------------------------------------------------------------------------


def test_the_clock_has_known_times() -> None:
    options = {"alpha": 1.0, "beta": 0.5, "first": 100.0, "disturbed": 10.0, "late": 7.0}
    clock = Clock(options, 2)
    single, double = (Ask("all_reduce", dtype=d, shape=(4,)) for d in ("float32", "float64"))
    right = 1 + 0.5 * 16
    assert [clock.duration(single) for _ in range(4)] == [right + 100, right, right, right + 10]
    assert clock.duration(double) == 1 + 0.5 * 32 + 100
    assert clock.duration(Ask("barrier")) == 0.0
    assert [clock.lateness(rank) for rank in (0, 1)] == [0.0, 0.0]
    clock.finish(single)
    assert [clock.lateness(rank) for rank in (0, 1, 1)] == [0.0, 7.0, 0.0]  # late once


def times(call: ExerciseCall) -> Any:
    return np.array([all_reduce_seconds(call.options, size) for size in SIZES])


Seen = Callable[[Any, ExerciseCall], Any]
#: Times that a student's `measure` receives with each mistake: nine calls, two of them disturbed.
SEEN: dict[str, Seen] = {
    "measure_milliseconds": lambda t, call: 1000 * t,
    "measure_elements": lambda t, call: np.array(
        [all_reduce_seconds(call.options, 4 * s) for s in SIZES]
    ),
    "measure_unsynchronised": lambda t, call: t + call.options["late"],
    "measure_total": lambda t, call: 9 * t,
    "measure_maximum": lambda t, call: t + DISTURBED_S,
    "measure_mean": lambda t, call: t + 2 / 9 * DISTURBED_S,
    "measure_first": lambda t, call: t + FIRST_S,
}


def judged(
    requirement: TimingRequirement, call: ExerciseCall, seen: Any
) -> tuple[bool, tuple[str, ...]]:
    """Return whether the requirement is met, and the mistakes that the times alone identify."""
    found = requirement.problem(call, Answer([{"seconds": seen}] * call.ranks))
    return found is None, () if found is None else found[1]


@pytest.mark.parametrize("requirement", MEASURED, ids=lambda r: r.name)
def test_times_that_are_right_are_accepted(requirement: TimingRequirement) -> None:
    (call,) = drawn(requirement)
    for off in (-0.001, 0.0, 0.003):
        assert judged(requirement, call, times(call) + off) == (True, ())


@pytest.mark.parametrize("requirement", MEASURED, ids=lambda r: r.name)
@pytest.mark.parametrize("name", TIMES)
def test_times_that_are_wrong_are_seen_and_named(requirement: TimingRequirement, name: str) -> None:
    (call,) = drawn(requirement)
    seen = SEEN[name](times(call), call)
    met, mistakes = judged(requirement, call, seen)
    assert met is (name == "measure_unsynchronised" and not requirement.late)
    if name in requirement.flags:
        flags = frozenset({name})
        answer = [{"seconds": seen}] * call.ranks
        assert mistakes == ()
        assert agrees(answer, requirement.expected(call, flags), requirement.tolerance(call, flags))
    elif not met:
        assert mistakes == (name,)


# --- catalogue, words and pages ----------------------------------------------------------------


def test_mistakes_are_planted_in_both_frameworks() -> None:
    wanted = {*NUMBERS, *TIMES, *ERRORS, CHANGED}
    for one in [f for f in load_lab("lab2").files if not f.starts_groups]:
        assert {p.name for p in load_plants("lab2") if p.file == one.name and not p.right} == wanted
    for plant in load_plants("lab2"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_lab2")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {
        f"mistake.{n}.{depth}" for n in (*NUMBERS, *TIMES, *ERRORS, CHANGED) for depth in depths
    }
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement_and_function(lang: str) -> None:
    task = read_page("lab2", "aggregate", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task
        assert f"`{requirement.target}(comm, " in task


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_report_has_the_five_parts(lang: str) -> None:
    heads = [
        line for line in read_page("lab2", "report", lang).splitlines() if line.startswith("#")
    ]
    assert [head[:4] for head in heads[1:]] == [f"## {part}" for part in range(1, 6)]
    assert heads[0].startswith("# ")


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip() for one in load_lab("lab2").files for line in read_solution(one).splitlines()
    }
    assert read_translations("lab2").keys() <= there
