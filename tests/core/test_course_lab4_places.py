"""Mistakes of Lab 4 at one place, two at once, by their errors, and what numbers are made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, Messages, load_messages
from dualml.course.exercise import RIGHT, Answer, ExerciseCall, Requirement, Trouble
from dualml.course.judge import Judgement, agrees, judge
from dualml.course.lab4.orders import ScheduleRequirement, make_schedule
from dualml.course.lab4.remote import RpcPipelineRequirement
from dualml.course.labs import find_exercise
from dualml.course.places import split_flag
from dualml.course.rendering import explain_mistake, format_position

SPLIT = {r.name: r for r in find_exercise("split_torch")[1].requirements}
RPC = RpcPipelineRequirement()


def drawn(requirement: Requirement) -> list[ExerciseCall]:
    return list(requirement.calls(np.random.default_rng(7)))


def judged(requirement: Any, flags: Sequence[str], **more: Any) -> Judgement:
    """Return the verdict on numbers with these mistakes; ``more`` are arrays of rank 0."""
    calls = drawn(requirement)
    answers = []
    for call in calls:
        made = [dict(own) for own in requirement.compute(call, frozenset(flags), np.float32)]
        made[0] |= more
        answers.append(Answer(made))
    return judge(requirement, calls, answers)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("stages.micro", "stage_divided_twice@rank=0"),
        ("stages.micro", "stage_undivided@rank=0"),
        ("stages.micro", "stage_last_alone@rank=1"),
        ("stages.micro", "stage_accumulated@rank=0"),
        ("stages.micro", "stage_step_each@rank=1"),
        ("stages.micro", "stage_step_each#3@rank=0"),
        ("stages.micro", "stage_left_out#3@rank=1"),
        ("stages.micro", "stage_undivided@micro_batch=-1"),
        ("stages.whole", "stage_step_twice@rank=1"),
        ("stages.whole", "stage_first_frozen@step=0"),
        ("column.forward", "column_bias_missing@rank=!0"),
        ("column.forward", "column_shifted@parameter=1"),
        ("column.backward", "column_gradient_mean@rank=0"),
        ("column.backward", "bias_gradient_mean@rank=-1"),
        ("row.forward", "row_strided@rank=-1"),
        ("row.forward", "row_bias_missing@rank=!0"),
        ("row.backward", "row_gradient_reduced@rank=0"),
    ],
)
def test_a_mistake_at_one_place_is_named_with_it(name: str, flag: str) -> None:
    found = judged(SPLIT[name], [flag])
    mistake, place = split_flag(flag)
    assert found.mistakes == (mistake,)
    assert found.places == {mistake: place}


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("stages.micro", ("stage_divided_twice@rank=0", "stage_last_alone@rank=1")),
        ("stages.micro", ("stage_accumulated@rank=1", "stage_loss_last")),
        ("stages.micro", ("stage_order_crossed", "stage_loss_undivided")),
        ("column.backward", ("column_bias_missing@rank=0", "bias_gradient_mean")),
        ("row.backward", ("row_bias_missing@rank=-1", "row_gradient_reduced@rank=0")),
    ],
)
def test_two_mistakes_are_named(name: str, flags: tuple[str, ...]) -> None:
    found = judged(SPLIT[name], flags)
    assert set(found.mistakes) == {split_flag(flag)[0] for flag in flags}
    assert found.places == {m: place for m, place in map(split_flag, flags) if place}


@pytest.mark.parametrize("name", ["stages.micro", "column.forward", "row.backward"])
def test_no_mistake_is_named_for_other_numbers(name: str) -> None:
    requirement = SPLIT[name]
    calls, draw = drawn(requirement), np.random.default_rng(2)
    answers = [
        Answer([{k: a + draw.normal(size=a.shape) for k, a in own.items()} for own in made])
        for made in map(requirement.expected, calls)
    ]
    found = judge(requirement, calls, answers)
    assert found.status == "not met"
    assert not found.mistakes
    assert found.inputs


@pytest.mark.parametrize("name", ["stages.micro", "column.forward", "row.backward"])
def test_an_argument_that_was_changed_is_named(name: str) -> None:
    requirement = SPLIT[name]
    key = "x/2" if name == "stages.micro" else "x"
    after = drawn(requirement)[0].arrays[0][key].copy()
    after[1, 2] += 1
    found = judged(requirement, (), **{f"changed/{key}": after})
    assert found.mistakes == ("argument_changed",)
    assert found.difference is not None
    assert (found.difference.key, found.difference.index) == ("before/x", (1, 2))


def test_the_loss_is_returned_on_rank_1_alone() -> None:
    requirement = SPLIT["stages.whole"]
    assert judged(requirement, ()).status == "met"
    everywhere = judged(requirement, (), **{"1/loss": np.zeros(())})
    assert everywhere.mistakes == ("stage_loss_everywhere",)
    call = drawn(requirement)[0]
    first, second = map(dict, requirement.expected(call))
    second |= {"1/none": np.ones(())}
    found = judge(requirement, [call], [Answer([first, second])])
    assert found.mistakes == ("stage_loss_missing",)


def test_the_first_difference_is_the_first_in_time() -> None:
    requirement = SPLIT["stages.whole"]
    call = drawn(requirement)[0]
    first, second = map(dict, requirement.expected(call))
    first["2/weight"] = first["2/weight"] + 1
    second["1/bias"] = second["1/bias"] + 1
    second["1/loss"] = second["1/loss"] + 1
    found = requirement.problem(call, Answer([first, second]))
    assert found is not None
    assert (found[0].rank, found[0].key) == (1, "1/loss")
    second["1/loss"] = second["1/loss"] - 1
    found = requirement.problem(call, Answer([first, second]))
    assert found is not None
    assert (found[0].rank, found[0].key) == (1, "1/bias")


# --- from what a number is computed ------------------------------------------------------------


@pytest.mark.parametrize("name", ["stages.whole", "stages.micro"])
@pytest.mark.parametrize(("rank", "key"), [(0, "2/weight"), (1, "3/bias"), (1, "2/loss")])
def test_a_wrong_update_can_be_computed_by_hand(name: str, rank: int, key: str) -> None:
    requirement = SPLIT[name]
    call = drawn(requirement)[0]
    made = [dict(own) for own in requirement.expected(call)]
    made[rank][key] = made[rank][key] + 1
    found = requirement.problem(call, Answer(made))
    assert found is not None
    numbers, hyper = requirement.inputs(call, found[0]), call.options["hyper"]
    slopes = [v for k, v in numbers.items() if k.startswith("∂")]
    if key.endswith("loss"):
        each = [np.mean(np.square(v)) if k.startswith("ŷ") else v for k, v in numbers.items()]
        result = float(np.mean(each))
    else:
        theta = next(v for k, v in numbers.items() if k.startswith("θ"))
        buffer = next(v for k, v in numbers.items() if k.startswith("v"))
        assert len(slopes) == hyper["micro_batches"]
        result = theta - hyper["lr"] * (hyper["momentum"] * buffer + float(np.mean(slopes)))
    assert result == pytest.approx(found[0].expected)


@pytest.mark.parametrize("name", ["column.backward", "row.backward"])
@pytest.mark.parametrize("key", ["y", "x", "weight", "bias"])
def test_a_wrong_number_of_a_layer_can_be_computed_by_hand(name: str, key: str) -> None:
    requirement = SPLIT[name]
    call = drawn(requirement)[0]
    made: list[Any] = [dict(own) for own in requirement.expected(call)]
    made[1][key] = made[1][key].copy()
    made[1][key].reshape(-1)[1] += 1
    found = requirement.problem(call, Answer(made))
    assert found is not None
    numbers = dict(requirement.inputs(call, found[0]))
    bias = numbers.pop("b", 0.0)
    vectors = [np.array(v) for v in numbers.values() if isinstance(v, tuple)]
    terms = [v for v in numbers.values() if not isinstance(v, tuple)]
    total = sum(terms) if terms else float(np.prod(vectors, axis=0).sum())
    assert total + bias == pytest.approx(found[0].expected)


@pytest.mark.parametrize(("lang", "bias"), [("en", "bias"), ("zh", "偏置")])
def test_a_place_is_said_in_words(lang: str, bias: str) -> None:
    words, place = Messages(lang), {"column_shifted": "parameter=1"}
    alone, several = (
        explain_mistake("column_shifted", 3, words, place, several) for several in (False, True)
    )
    assert bias in alone["symptom"]
    assert bias in several["symptom"]
    assert alone["symptom"] != several["symptom"]
    assert "gradient" in format_position("before/gradient", (1, 2), words)


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirement", "error", "name"),
    [
        ("stages.micro", "ValueError: send/0 is object, not numbers", "stage_cut_no_gradient"),
        ("stages.micro", "ValueError: rank 1 receives 6 elements from rank 0 and expects 3",
         "stage_message_shape"),
        ("stages.micro", "RuntimeError: element 0 of tensors does not require grad and",
         "stage_detached"),
        ("stages.micro", "RuntimeError: one of the variables needed for gradient computation has"
         " been modified by an inplace operation: [torch.FloatTensor [2, 3]] is at",
         "stage_one_buffer"),
        ("stages.micro", "RuntimeError: one of the variables needed for gradient computation has"
         " been modified by an inplace operation: [torch.FloatTensor [3, 2]], which is output 0 of",
         "stage_step_each"),
        ("stages.micro", "CommunicationError: rank 0 waited for exchange to [] from [1]; missing",
         "stage_waits"),
        ("column.forward", "RuntimeError: The size of tensor a (12) must match the size of tensor"
         " b (6) at non-singleton dimension 1", "column_weight_uncut"),
        ("column.forward", "RuntimeError: The size of tensor a (6) must match the size of tensor"
         " b (12) at non-singleton dimension 1", "column_bias_uncut"),
        ("column.forward", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 6x5)",
         "layer_shape"),
        ("row.forward", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x6 and 12x5)",
         "row_weight_uncut"),
        ("row.forward", "RuntimeError: For 'MatMulExt' op, shape1[-1] must be equal to shape2[-2],"
         " but got 6 and 12.", "row_weight_uncut"),
        ("row.forward", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x0 and 6x5)",
         "row_input_sliced"),
        ("row.backward", "WrongReturn: RowLinear.backward(…): None → Tensor",
         "layer_no_result"),
    ],
)  # fmt: skip
def test_an_error_names_its_mistake(requirement: str, error: str, name: str) -> None:
    kind, _, message = error.partition(": ")
    assert SPLIT[requirement].mistakes_of(Trouble(kind, message)) == (name,)


# --- schedules and remote calls ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("1f1b", "warm_up_long@stage=-1"),
        ("1f1b", "warm_up_short@stage=0"),
        ("1f1b", "order_cool_down_missing@stage=0"),
        ("gpipe", "order_1f1b_for_gpipe@stage=-1"),
    ],
)
def test_a_mistake_of_one_stage_is_named_with_it(kind: str, flag: str) -> None:
    p, m = 4, 7
    name, place = split_flag(flag)
    stage = 0 if place == "stage=0" else p - 1
    orders = make_schedule(p, m, kind)
    if kind == "gpipe":
        wrong = [(way, k) for k in range(m) for way in (0, 1)]
    else:
        wrong = make_schedule(p, m, kind, name)[stage]
    orders[stage] = wrong
    arrays = {"stages": np.array(p), **{str(s): np.array(o) for s, o in enumerate(orders)}}
    call = ExerciseCall("orders", "schedule", {"stages": p, "micro_batches": m, "kind": kind}, [{}])
    found = [
        judge(ScheduleRequirement("schedule", kind, aspect), [call], [Answer([arrays])])
        for aspect in ("complete", "possible", "shape", "time")
    ]
    failed = next(j for j in found if j.status == "not met")
    assert failed.mistakes == (name,)
    assert failed.places == {name: place}


def test_a_mistake_of_some_stages_is_named() -> None:
    p, m = 4, 7
    orders = make_schedule(p, m, "gpipe")
    wrong = make_schedule(p, m, "gpipe", "order_backward_reversed")
    orders[1], orders[3] = wrong[1], wrong[3]
    arrays = {"stages": np.array(p), **{str(s): np.array(o) for s, o in enumerate(orders)}}
    options = {"stages": p, "micro_batches": m, "kind": "gpipe"}
    requirement = ScheduleRequirement("schedule", "gpipe", "time")
    call = ExerciseCall("orders", "schedule", options, [{}])
    found = judge(requirement, [call], [Answer([arrays])])
    assert found.mistakes == ("order_backward_reversed",)


def test_mistakes_of_remote_calls_show_and_no_two_look_alike() -> None:
    (call,) = drawn(RPC)
    looks = {f: RPC.expected(call, frozenset({f}) if f else RIGHT) for f in ("", *RPC.flags)}
    for one, other in combinations(looks, 2):
        assert not agrees(looks[one], looks[other], RPC.tolerance(call)), (one, other)
    assert judged(RPC, ["stage_step_twice@stage=0"]).places == {"stage_step_twice": "stage=0"}


def test_a_stage_that_is_never_called_where_it_lives_is_named() -> None:
    assert judged(RPC, ["stage_both_frozen"]).mistakes == ("stage_both_frozen",)
    copied = judged(RPC, ["stage_both_frozen"], **{"calls/0": np.array(0)})
    assert copied.mistakes == ("rpc_stage_copied",)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_mistakes_of_remote_calls(lang: str) -> None:
    known = load_messages(lang, "course_rpc").keys() | load_messages(lang, "course_lab4").keys()
    names = {split_flag(flag)[0] for flag in RPC.flags} | {name for _, name in RPC.errors}
    for name in names | {"rpc_stage_copied", "rpc_outputs", "stage_loss_missing"}:
        for depth in ("symptom", "place", "principle", "cause"):
            assert f"mistake.{name}.{depth}" in known
