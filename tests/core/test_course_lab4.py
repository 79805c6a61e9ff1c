"""The exercises of Lab 4, without a framework: schedules, rules, catalogue, messages, pages."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.common.words import LANGUAGES, load_messages
from dualml.course import drive_lab4
from dualml.course.catalogue import Plant, load_plants
from dualml.course.exercise import Answer, ExerciseCall, Requirement, Trouble
from dualml.course.judge import Judgement, judge
from dualml.course.lab4 import orders
from dualml.course.lab4.layer_requirements import AllReduceCountRequirement, LayerRequirement
from dualml.course.lab4.layers import row_layer
from dualml.course.lab4.orders import Order
from dualml.course.lab4.requirements import StageRequirement
from dualml.course.labs import find_exercise, load_lab
from dualml.course.places import split_flag
from dualml.course.workspace import read_page, read_solution, read_translations
from dualml.parallel.split.schedules import bubble, build, live_bound

SCHEDULE, SPLIT = find_exercise("schedule")[1], find_exercise("split_torch")[1]
FILES = [SCHEDULE, SPLIT, find_exercise("split_ms")[1]]
SIZES = [(kind, p, m) for kind in ("gpipe", "1f1b") for p, m in product(range(1, 6), range(1, 8))]
PLANTS = [p for p in load_plants("lab4") if p.file in {one.name for one in FILES}]
#: Mistakes that are named by a property of the order, not by equality with a known one.
GENERAL = (
    "order_stages",
    "order_incomplete",
    "order_twice",
    "order_impossible",
    "order_kept_too_long",
    "order_slow",
)
#: Mistakes that the communicator exercises of other labs share.
SHARED = {"crossed"}
NUMBERS = [
    r
    for r in SPLIT.requirements
    if isinstance(r, StageRequirement | LayerRequirement)
    and not isinstance(r, AllReduceCountRequirement)
]


def drawn(requirement: Requirement) -> list[ExerciseCall]:
    return list(requirement.calls(np.random.default_rng(5)))


# --- schedules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "p", "m"), SIZES)
def test_the_schedules_are_those_of_our_own_pipelines(kind: str, p: int, m: int) -> None:
    made = orders.make_schedule(p, m, kind)
    own = build(kind, range(p), m)
    assert made == [[("FB".index(a.kind), a.micro) for a in program] for program in own.programs()]
    assert [orders.max_in_flight(order) for order in made] == [
        live_bound(kind, range(p), m, stage) for stage in range(p)
    ]


@pytest.mark.parametrize(("kind", "p", "m"), SIZES)
def test_the_time_of_a_pipeline_is_the_closed_form(kind: str, p: int, m: int) -> None:
    time = orders.makespan(orders.make_schedule(p, m, kind))
    assert time == 3 * (m + p - 1)
    assert 1 - 3 * m / time == pytest.approx(bubble(p, m))
    assert orders.makespan(orders.make_schedule(p, m, kind, "order_naive")) == 3 * p * m


def test_orders_that_never_end() -> None:
    assert orders.makespan([[(1, 0), (0, 0)]]) is None
    assert orders.makespan(orders.make_schedule(3, 4, "1f1b", "warm_up_reversed")) is None


def answered(text: str, requirement: Requirement) -> Judgement:
    """Return the verdict on a file's schedule."""
    names: dict[str, Any] = {}
    exec(compile(text, SCHEDULE.name, "exec"), names)
    module = type("Module", (), {"schedule": staticmethod(names["schedule"])})
    calls = drawn(requirement)
    answers = [answer_of(module, call) for call in calls]
    return judge(requirement, calls, answers)


def answer_of(module: Any, call: ExerciseCall) -> Answer:
    try:
        return Answer([drive_lab4.orders(module, call.target, call.options, {})])
    except TypeError as error:
        return Answer(trouble=Trouble("TypeError", str(error)))


def first_failed(text: str) -> Judgement | None:
    judgements = (answered(text, requirement) for requirement in SCHEDULE.requirements)
    return next((j for j in judgements if j.status != "met"), None)


def title(plant: Plant) -> str:
    return plant.title


@pytest.mark.parametrize("plant", [p for p in PLANTS if p.file == SCHEDULE.name], ids=title)
def test_a_schedule_is_accepted_or_its_mistake_named(plant: Plant) -> None:
    failed = first_failed(plant.patch.apply(read_solution(SCHEDULE)))
    if plant.right:
        assert failed is None
    else:
        assert failed is not None
        assert failed.mistakes == (plant.name,)


def test_our_schedule_meets_everything() -> None:
    assert first_failed(read_solution(SCHEDULE)) is None


@pytest.mark.parametrize(
    ("looks", "made", "name"),
    [
        ("complete", [[(0, 0), (1, 0)]], "order_stages"),
        ("complete", [[(0, 0), (1, 0)], [(0, 0)]], "order_incomplete"),
        ("complete", [[(0, 0), (1, 0)], [(0, 0), (1, 0), (1, 1)]], "order_incomplete"),
        ("complete", [[(0, 0), (1, 0)], [(0, 0), (0, 0), (1, 0)]], "order_twice"),
        ("possible", [[(0, 0), (1, 0)], [(1, 0), (0, 0)]], "order_impossible"),
        (
            "shape",
            [
                [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
                [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)],
            ],
            "order_kept_too_long",
        ),
        (
            "time",
            [
                [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)],
                [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)],
            ],
            "order_slow",
        ),
    ],
)
def test_what_is_no_known_order_is_named_by_what_it_is(
    looks: str, made: list[Order], name: str
) -> None:
    requirement = next(r for r in SCHEDULE.requirements if r.name == f"schedule.1f1b.{looks}")
    count = max(m for way, m in made[0] if way) + 1
    options = {"stages": 2, "micro_batches": count, "kind": "1f1b"}
    arrays = {"stages": np.array(len(made))}
    arrays |= {str(s): np.array(order) for s, order in enumerate(made)}
    found = requirement.problem(ExerciseCall("orders", "schedule", options, [{}]), Answer([arrays]))
    assert found is not None
    assert found[1] == (name,)


# --- stages and layers -------------------------------------------------------------------------


def loss(weights: list[Any], x: Any, y: Any) -> float:
    """Return the loss of the whole model on a whole batch."""
    z = x @ weights[0].T + weights[1]
    return float((((z / (1 + abs(z))) @ weights[2].T + weights[3] - y) ** 2).mean())


def slopes(weights: list[Any], x: Any, y: Any) -> list[Any]:
    """Return the gradient by central differences."""
    gradients = [np.zeros_like(w) for w in weights]
    for w, g in zip(weights, gradients, strict=True):
        for place in np.ndindex(w.shape):
            here, sides = w[place], []
            for off in (1e-5, -1e-5):
                w[place] = here + off
                sides.append(loss(weights, x, y))
            w[place] = here
            g[place] = (sides[0] - sides[1]) / 2e-5
    return gradients


@pytest.mark.parametrize("requirement", NUMBERS[:2], ids=lambda r: r.name)
def test_two_stages_are_the_whole_model(requirement: StageRequirement) -> None:
    (call,) = drawn(requirement)
    first, second = call.arrays
    weights = [a[n].astype(np.float64) for a in (first, second) for n in ("weight", "bias")]
    made = requirement.expected(call)
    lr, momentum = call.options["lr"], call.options.get("momentum", 0.0)
    buffers = [0 * w for w in weights]
    for step in range(1, call.options["steps"] + 1):
        x, y = first[f"x/{step}"].astype(np.float64), second[f"y/{step}"].astype(np.float64)
        assert made[1][f"{step}/loss"] == pytest.approx(loss(weights, x, y))
        gradients = slopes(weights, x, y)
        buffers = [momentum * v + g for v, g in zip(buffers, gradients, strict=True)]
        weights = [w - lr * v for w, v in zip(weights, buffers, strict=True)]
        seen = [own[f"{step}/{n}"] for own in made for n in ("weight", "bias")]
        for right, rule in zip(weights, seen, strict=True):
            np.testing.assert_allclose(rule, right, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("requirement", NUMBERS[2:], ids=lambda r: r.name)
def test_the_parts_of_a_layer_are_the_whole_layer(requirement: LayerRequirement) -> None:
    rows = requirement.rule is row_layer
    for call in drawn(requirement):
        parts = [{k: a.astype(np.float64) for k, a in own.items()} for own in call.arrays]
        w, b = parts[0]["w"], parts[0]["b"]
        x = np.hstack([p["x"] for p in parts]) if rows else parts[0]["x"]
        g = parts[0]["g"] if rows else np.hstack([p["g"] for p in parts])
        whole = {"y": x @ w.T + b, "x": g @ w, "weight": g.T @ x, "bias": g.sum(0)}
        cut = {"x": 1, "weight": 1} if rows else {"y": 1, "weight": 0, "bias": 0}
        made = requirement.expected(call)
        assert made[0].keys() <= whole.keys()
        for key in made[0]:
            if key in cut:
                joined = np.concatenate([own[key] for own in made], axis=cut[key])
                np.testing.assert_allclose(joined, whole[key])
            else:
                for own in made:
                    np.testing.assert_allclose(own[key], whole[key])


@pytest.mark.parametrize("target", ["train_step", "ColumnLinear", "RowLinear"])
def test_mistakes_show_and_no_two_look_alike(target: str) -> None:
    calls = [(r, call) for r in NUMBERS if r.target == target for call in drawn(r)]
    flags = dict.fromkeys(flag for r, _ in calls for flag in r.flags)
    assert flags
    assert find_look_alikes(calls, flags) == []


@pytest.mark.parametrize(
    ("name", "forward", "backward", "met"),
    [
        ("column.sums", 0, 1, True),
        ("column.sums", 1, 1, False),
        ("column.sums", 0, 2, False),
        ("row.sums", 1, 0, True),
        ("row.sums", 2, 0, False),
        ("row.sums", 1, 1, False),
    ],
)
def test_sums_are_counted(name: str, forward: int, backward: int, met: bool) -> None:
    requirement = next(r for r in SPLIT.requirements if r.name == name)
    (call,) = drawn(requirement)
    counts = {"forward": np.ones(forward), "backward": np.ones(backward)}
    found = requirement.problem(call, Answer([counts] * call.ranks))
    assert (found is None) is met
    assert found is None or found[1] == ("too_many_sums",)


# --- words and pages ---------------------------------------------------------------------------


def mistakes() -> set[str]:
    named = {split_flag(f)[0] for one in FILES for r in one.requirements for f in r.flags}
    by_error = {name for one in FILES for r in one.requirements for _, name in r.errors}
    return (named | by_error | set(GENERAL) | {p.name for p in PLANTS if not p.right}) - SHARED


def test_mistakes_of_both_frameworks_are_planted_in_both() -> None:
    planted_in = {
        one.name: {p.name for p in PLANTS if p.file == one.name and not p.right} for one in FILES
    }
    torch, mindspore = (planted_in[f"split_{name}.py"] for name in ("torch", "ms"))
    layers = {split_flag(f)[0] for r in NUMBERS if r.target != "train_step" for f in r.flags}
    assert layers | {"stage_waits", "stage_undivided"} <= torch & mindspore
    assert planted_in[SCHEDULE.name] <= {
        *(split_flag(flag)[0] for flag in orders.FLAGS),
        *GENERAL,
        "order_no_pairs",
    }


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_lab4")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{name}.{depth}" for name in mistakes() for depth in depths}
    wanted |= {f"requirement.{r.name}" for one in FILES for r in one.requirements}
    assert own.keys() == wanted
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("task", "one"), [("schedule", SCHEDULE), ("split", SPLIT)])
def test_a_task_names_every_requirement(task: str, one: Any, lang: str) -> None:
    text = read_page("lab4", task, lang)
    assert text.startswith("# ")
    for requirement in one.requirements:
        assert f"`{requirement.name}`" in text


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip() for one in load_lab("lab4").files for line in read_solution(one).splitlines()
    }
    assert read_translations("lab4").keys() <= there
