"""The exercise of Lab 2, without a framework: rules, times, catalogue, messages, pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.common.seeds import make_generator
from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.clock import Clock
from dualml.course.collectives import Ask
from dualml.course.exercise import Answer, ExerciseCall, Requirement, Trouble
from dualml.course.judge import agrees, judge
from dualml.course.lab2.layout import RingLayout, find_layout
from dualml.course.lab2.measuring import DISTURBED_S, FIRST_S, SIZES, TimingRequirement
from dualml.course.lab2.reductions import (
    PLACES,
    UnchangedInputRequirement,
    keep_arguments,
)
from dualml.course.lab2.requirements import ELEMENTS, SHAPES, CollectiveRequirement, requirements
from dualml.course.lab2.ring import ring_all_reduce
from dualml.course.lab2.ring_requirement import RING_PLACES
from dualml.course.lab2.rules import all_reduce_seconds
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_page, read_solution, read_translations
from dualml.parallel.aggregation import Ring

REQUIREMENTS = requirements()
TOGETHER = [r for r in REQUIREMENTS if isinstance(r, CollectiveRequirement)]
MEASURED = [r for r in REQUIREMENTS if isinstance(r, TimingRequirement)]
#: Mistakes that errors reveal, those that times reveal, and those that changed arguments or the
#: traffic reveal.
ERRORS = (
    "crossed",
    "one_sided",
    "other_collective",
    "gather_none",
    "broadcast_nothing",
    "ring_index",
    "ring_alone",
    "ring_no_modulo",
    "ring_chunk_count",
    "ring_reply_key",
    "ring_length",
    "ring_type",
)
TIMES = (
    "measure_milliseconds",
    "measure_elements",
    "measure_unsynchronised",
    "measure_total",
    "measure_maximum",
    "measure_mean",
    "measure_first",
    "measure_unit",
)
BARRIERS = ("measure_barrier_timed", "measure_barrier_once", "measure_one_size")
OTHERS = ("ring_in_place", "arguments_changed", "chosen_ignored", "ring_uneven")
#: Mistakes that only one framework makes possible: MindSpore's messages come in new tensors.
TORCH_ONLY = ("ring_one_buffer",)
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
            if isinstance(requirement, UnchangedInputRequirement):
                kept = {key.replace("before", "t"): a for key, a in own.items()}
                wanted = {k: a for k, a in call.arrays[rank].items() if k[0] == "t"}
                assert kept.keys() == wanted.keys()
                assert all(np.array_equal(kept[k], a) for k, a in wanted.items())
                continue
            if call.kind == "ring":
                whole = np.sum([a["t"] for a in call.arrays], axis=0, dtype=np.float64)
                np.testing.assert_allclose(own["sum"], whole)
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
        made = ring_all_reduce(call.arrays)
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
    assert find_look_alikes(calls, flags) == []


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("ring.kept", "ring_in_place"),
        ("reduce.kept", "arguments_changed"),
        ("gather.kept", "arguments_changed"),
        ("average.kept", "arguments_changed"),
    ],
)
def test_a_tensor_that_is_changed_is_seen(name: str, mistake: str) -> None:
    requirement = find_requirement(name)
    (call,) = drawn(requirement)
    right = requirement.expected(call)
    assert requirement.problem(call, Answer(right)) is None
    for key in right[0]:
        changed = [{**a, key: a[key] * 2} for a in right]
        found = requirement.problem(call, Answer(changed))
        assert found is not None
        assert found[1] == (mistake,)


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
        ("TypeError", "'NoneType' object is not iterable", ""),  # no line: nothing was returned
    ],
)
def test_other_errors_are_named_by_what_they_say(kind: str, message: str, name: str) -> None:
    for requirement in TOGETHER:
        assert requirement.mistakes_of(Trouble(kind, message)) == ((name,) if name else ())


@pytest.mark.parametrize(
    ("kind", "message", "rank", "name"),
    [
        ("CommunicationError", "rank 0 of 1 cannot exchange with rank 0", 0, "ring_alone"),
        ("CommunicationError", "rank 0 of 3 cannot exchange with rank -1", 0, "ring_no_modulo"),
        ("CommunicationError", "rank 2 of 3 cannot exchange with rank 3", 2, "ring_no_modulo"),
        ("CommunicationError", "rank 2 of 3 cannot exchange with rank 2", 2, ""),
        ("IndexError", "list index out of range", 0, "ring_chunk_count"),
        ("IndexError", "list index out of range", 3, "ring_no_modulo"),
        ("KeyError", "2", 0, "ring_reply_key"),
        ("ValueError", "rank 1 receives float32 from rank 0 and expects float64", 1, "ring_type"),
        ("AttributeError", "'dict' object has no attribute 'shape'", 0, "ring_reply_key"),
        ("RuntimeError", "shape '[5]' is invalid for input of size 3", 0, "ring_length"),
        ("RuntimeError", "The size of tensor a (3) must match", 0, "ring_stored_elsewhere"),
        (
            "ValueError",
            "For 'AddExt', input.shape and other.shape need to broadcast",
            0,
            "ring_stored_elsewhere",
        ),
    ],
)
def test_errors_in_a_ring_are_named(kind: str, message: str, rank: int, name: str) -> None:
    trouble = Trouble(kind, message, line=9, rank=rank)
    found = find_requirement("ring.sum").mistakes_of(trouble)
    assert found == ((name,) if name else ())


@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        ("TypeError", "'NoneType' object is not iterable", "gather_none"),
        ("TypeError", 'Failed calling mul with "mul(None)".', "gather_none"),
        ("AttributeError", "'NoneType' object has no attribute 'dtype'", "broadcast_nothing"),
        ("UnboundLocalError", "cannot access local variable 'mean'", "broadcast_nothing"),
    ],
)
def test_what_other_ranks_lack_is_named(kind: str, message: str, name: str) -> None:
    trouble = Trouble(kind, message, line=9, rank=1)
    for target in ("gather.uneven", "gather.kept", "chosen.gather.uneven", "average.mean"):
        assert find_requirement(target).mistakes_of(trouble) == (name,)
    assert find_requirement("reduce.uneven").mistakes_of(trouble) == ()


# --- answers -----------------------------------------------------------------------------------


def judged_as(requirement: Requirement, *flags: str) -> Any:
    """Judge the answers of a function with these mistakes; the ring's have their traffic."""
    calls = drawn(requirement)
    answers = [answer_with(requirement, call, *flags) for call in calls]
    return judge(requirement, calls, answers)


def answer_with(requirement: Requirement, call: ExerciseCall, *flags: str) -> Answer:
    """Make the answer of a function with these mistakes, in float32."""
    made = requirement.compute(call, frozenset(flags), np.float32)  # type: ignore[attr-defined]
    return Answer([{**own, **first_messages(call)[r]} for r, own in enumerate(made)])


def first_messages(call: ExerciseCall) -> list[dict[str, Any]]:
    """Make the traffic of a ring of 2(n − 1) messages: to whom they go, and the first with the
    call's ``layout``; else nothing."""
    layout, n = call.options.get("layout"), call.ranks
    if call.kind != "ring":
        return [{} for _ in range(n)]
    if layout is None:
        return [{"peers": np.full(2 * (n - 1), (r + 1) % n)} for r in range(n)]
    found = []
    for r, own in enumerate(call.arrays):
        flat = np.append(own["t"].reshape(-1), np.zeros(layout.element_count, np.float32))
        first = flat[layout.chunks[(r + layout.start) % n]]
        found.append({"first": first, "peers": np.full(2 * (n - 1), (r + layout.direction) % n)})
    return found


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *(("sum_weighted_undivided", place) for place in PLACES),
        *(("sum_weight_forgotten", place) for place in PLACES if "source" in place),
        *(("sum_own_share", place) for place in PLACES if "source" not in place),
        ("sum_local", "rank=0"),
        ("sum_local", "tensor=-1"),
        ("sum_local", "row=!0"),
    ],
)
def test_a_sum_that_is_wrong_at_one_place_is_named_with_it(name: str, place: str) -> None:
    found = judged_as(find_requirement("gather.uneven"), f"{name}@{place}")
    assert found.mistakes == (name,)
    assert found.places == {name: place}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *(("ring_gather_adds", place) for place in RING_PLACES),
        *(("ring_overwritten", place) for place in ("ring_step=0", "rank=0", "rank=-1", "slice=0")),
        *(("ring_not_stored#3", place) for place in ("ring_step=0", "rank=!0", "slice=-1")),
        *((name, "rank=0") for name in ("ring_mean", "ring_own_twice", "ring_own_missing")),
    ],
)
def test_a_ring_that_is_wrong_at_one_place_is_named_with_it(name: str, place: str) -> None:
    found = judged_as(find_requirement("ring.sum"), f"{name}@{place}")
    assert found.mistakes == (name.partition("#")[0],)
    assert found.places == {found.mistakes[0]: place}


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("cut", ["whole division", "every n-th", "padded"])
def test_the_borders_are_the_student_s(cut: str, direction: int) -> None:
    requirement = find_requirement("ring.sum")
    for start in (0, 1):
        calls, answers = drawn(requirement), []
        for call in calls:
            n, size = call.ranks, call.arrays[0]["t"].size
            longest = -(-size // n)
            ends = [longest * i if cut == "padded" else size * i // n for i in range(n + 1)]
            blocks = [np.arange(a, b) for a, b in pairwise(ends)]
            strided = [np.arange(c, size, n) for c in range(n)]
            layout = RingLayout(strided if cut == "every n-th" else blocks, direction, start)
            chosen = replace(call, options={**call.options, "layout": layout})
            answers.append(answer_with(requirement, chosen, "ring_gather_adds"))
        assert judge(requirement, calls, answers).mistakes == ("ring_gather_adds",)


def test_chunks_that_differ_by_more_than_one_element_are_named() -> None:
    requirement = find_requirement("ring.traffic")
    for call in drawn(requirement):
        n, size = call.ranks, call.arrays[0]["t"].size
        longer = size // n + 1
        for lengths, found in (
            ([size // n] * (n - 1), ("ring_uneven",)),
            ([longer] * (n - 1), ("ring_uneven",) if n == 4 else None),
            ([longer, longer, *[size // n] * (n - 3)], None),
        ):
            chunks = np.split(np.arange(size), np.cumsum(lengths))
            arrays = [
                {
                    **made,
                    "first": call.arrays[rank]["t"].reshape(-1)[chunks[rank]],
                    "peers": np.full(2 * (n - 1), (rank + 1) % n),
                }
                for rank, made in enumerate(requirement.expected(call))
            ]
            problem = requirement.problem(call, Answer(arrays))
            assert (problem and problem[1]) == found


def test_a_message_that_is_no_part_of_the_tensor_shows_no_borders() -> None:
    (call,) = drawn(find_requirement("ring.short"))
    inputs = [own["t"].reshape(-1) for own in call.arrays]
    traffic = [{"first": x[:1] + 1, "peers": np.array([(r + 1) % 4])} for r, x in enumerate(inputs)]
    assert find_layout(inputs, traffic) is None
    assert find_layout(inputs, [{"peers": np.array([], np.int64)}] * 4) is None
    to_one = [{"first": x[:1], "peers": np.array([0])} for x in inputs]
    assert find_layout(inputs, to_one) is None


@pytest.mark.parametrize(("name", "way"), [("reduce", "all_reduce"), ("gather", "gather")])
def test_the_way_that_is_asked_for_is_compared_with_the_traffic(name: str, way: str) -> None:
    requirement = find_requirement(f"chosen.{name}.uneven")
    (call,) = drawn(requirement)
    elements = sum(a.size for key, a in call.arrays[0].items() if key[0] == "t")

    def answer(**passed: int) -> Answer:
        sent = {f"sent/{n}": np.array([passed.get(n, 0)]) for n in ("all_reduce", "gather")}
        kept = keep_arguments(call.arrays)
        made = requirement.expected(call)
        return Answer([{**own, **kept[r], **sent} for r, own in enumerate(made)])

    other = {"all_reduce": "gather", "gather": "all_reduce"}[way]
    assert requirement.problem(call, answer(**{way: elements + 1})) is None
    found = requirement.problem(call, answer(**{other: elements + 1, way: 1}))
    assert found is not None
    assert found[1] == ("chosen_ignored",)
    changed = answer(**{way: elements + 1})
    changed.arrays[0]["before/0"][0] += 1
    assert requirement.problem(call, changed)[1] == ("arguments_changed",)


def test_one_tensor_in_place_of_several_is_named() -> None:
    requirement = find_requirement("average.mean")
    calls = drawn(requirement)
    answers = [Answer([{"0": own["3"]} for own in requirement.expected(c)]) for c in calls]
    assert judge(requirement, calls, answers).mistakes == ("one_result",)
    more = [Answer([{**own, "4": own["3"]} for own in requirement.expected(c)]) for c in calls]
    found = judge(requirement, calls, more)
    assert (found.difference.key, found.difference.expected) == ("4", "nothing")


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
    "measure_unit": lambda t, call: 1e6 * t,
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


@pytest.mark.parametrize("name", ["ring.sum", "ring.short"])
def test_the_ranks_may_add_in_any_order(name: str) -> None:
    requirement = find_requirement(name)
    for seed in (*range(60), 1371573884):  # with the last one, the four numbers nearly cancel
        for call in requirement.calls(make_generator(seed, "exercise", name)):
            allowed = requirement.tolerance(call)[0]["sum"]
            right = requirement.expected(call)[0]["sum"]
            for order in permutations(own["t"].astype(np.float32) for own in call.arrays):
                assert np.all(np.abs(sum(order[1:], order[0]) - right) <= allowed), seed


@pytest.mark.parametrize("name", ["measure_milliseconds", "measure_unit", "measure_unit#2"])
def test_noise_in_another_unit_is_no_other_mistake(name: str) -> None:
    for requirement in MEASURED:
        (call,) = drawn(requirement)
        seen = SEEN[name.partition("#")[0]](times(call) + 0.002, call)
        seen = seen * (1e3 if "#" in name else 1.0)
        found = judge(requirement, [call], [Answer([{"seconds": seen}] * call.ranks)])
        assert found.mistakes == (name.partition("#")[0],)


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


@pytest.mark.parametrize("unit", ["measure_milliseconds", "measure_unit"])
@pytest.mark.parametrize("name", ["measure_mean", "measure_total", "measure_maximum"])
def test_a_wrong_time_in_another_unit_is_named_as_both(unit: str, name: str) -> None:
    for requirement in MEASURED:
        (call,) = drawn(requirement)
        seen = SEEN[unit](SEEN[name](times(call), call), call)
        assert judged(requirement, call, seen) == (False, (unit, name))


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ([4, 4, 4], "measure_unsynchronised"),
        ([4, 0, 4, 0, 4, 0, 4], "measure_barrier_timed"),
        ([0, 4, 4, 4, 4, 0, 9, 9, 9], "measure_barrier_once"),
    ],
)
def test_what_a_barrier_does_not_help_is_told_apart(calls: list[int], name: str) -> None:
    requirement = next(r for r in MEASURED if r.late)
    (call,) = drawn(requirement)
    seen = {"seconds": times(call) + call.options["late"], "calls": np.array(calls)}
    found = requirement.problem(call, Answer([seen] * call.ranks))
    assert found is not None
    assert found[1] == (name,)
    both = requirement.problem(call, Answer([{**seen, "seconds": 1e3 * seen["seconds"]}] * 2))
    assert both is not None
    assert both[1] == ("measure_milliseconds", name)


def test_one_time_in_place_of_several_is_named() -> None:
    for requirement in MEASURED:
        (call,) = drawn(requirement)
        assert judged(requirement, call, times(call)[:1]) == (False, ("measure_one_size",))
        assert judged(requirement, call, np.append(times(call), 1.0)) == (False, ())


# --- catalogue, words and pages ----------------------------------------------------------------


def test_mistakes_are_planted_in_both_frameworks() -> None:
    wanted = {*NUMBERS, *TIMES, *BARRIERS, *ERRORS, *OTHERS}
    for one in [f for f in load_lab("lab2").files if not f.starts_groups]:
        planted = {p.name for p in load_plants("lab2") if p.file == one.name and not p.right}
        assert planted == wanted - (set() if one.backend == "torch" else {*TORCH_ONLY})
    for plant in load_plants("lab2"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_lab2")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {
        f"mistake.{n}.{depth}"
        for n in (*NUMBERS, *TIMES, *BARRIERS, *ERRORS, *OTHERS)
        for depth in depths
    }
    named = {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert own.keys() == wanted | named | {"course.fact.chunks"}
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
