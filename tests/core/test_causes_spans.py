"""Subgraphs of a model with one input and one output."""

from __future__ import annotations

from collections import defaultdict

from dualml.parity.causes.spans import SpanFinder, relocated_modules, replayed_calls, run_plan
from dualml.parity.models.operations import Operation, SourceLocation

SHAPE = (2, 3)


def call(number: int, name: str, *inputs: str, line: int = 0, module: str = "") -> Operation:
    return Operation(number, name, inputs, {}, (SHAPE,), SourceLocation("x.py", line), module)


def spans(*calls: Operation) -> SpanFinder:
    consumers = defaultdict(list)
    for one in calls:
        for name in one.inputs:
            consumers[name].append(one.number)
    return SpanFinder(calls, consumers, {"input:0": SHAPE})


#: x + f(norm(x)), twice, by the same source lines.
BLOCKS = [
    call(0, "layer_norm", "input:0", "parameter:a", line=1, module="0.norm"),
    call(1, "linear", "op:0", "parameter:b", line=2, module="0.fc"),
    call(2, "add", "input:0", "op:1", line=3),
    call(3, "layer_norm", "op:2", "parameter:c", line=1, module="1.norm"),
    call(4, "linear", "op:3", "parameter:d", line=2, module="1.fc"),
    call(5, "add", "op:2", "op:4", line=3),
]


def test_a_span_ends_wherever_one_value_alone_is_left() -> None:
    found = spans(*BLOCKS)
    ends = [(span.takers, span.calls, span.exit) for span in found.spans_from("input:0")]
    assert ((0, 2), (0, 1, 2), "op:2") in ends
    assert ((0,), (0,), "op:0") in ends
    assert ((0,), (0, 1, 2), "op:2") in ends  # the residual enters from outside
    assert not [span for span in found.spans_from("input:0", whole=True) if span.exit == "op:0"]


def test_two_spans_change_places_in_every_block() -> None:
    changes = [one for one in spans(*BLOCKS).mutations(BLOCKS[0]) if one.kind == "order"]
    behind = [one for one in changes if one.sites == (1, 4)]
    assert [(one.operation, one.old) for one in behind] == [("0.fc", "0.norm")]
    # What goes in there: the input of the first block, and what it gives for the second.
    assert [plan[1] for plan in behind[0].value] == ["input:0", "op:2"]
    assert replayed_calls(behind) == {0, 1, 3, 4}
    assert relocated_modules(BLOCKS, behind) == {"0.norm", "0.fc", "0", "1.norm", "1.fc", "1"}


def test_a_plan_is_made_step_by_step() -> None:
    change = next(
        one
        for one in spans(*BLOCKS).mutations(BLOCKS[0])
        if one.kind == "order" and one.sites == (1,)
    )

    def run(number: int, given: dict[str, str]) -> list[str]:
        one = BLOCKS[number]
        return [f"{one.name}({given.get(one.inputs[0], '?')})"]

    assert run_plan(change, 1, "x", run, lambda step, x: x) == "layer_norm(linear(x))"


def test_the_same_line_with_fewer_inputs_is_another_call() -> None:
    fewer = call(3, "layer_norm", "op:2", line=1, module="1.norm")
    found = list(spans(*BLOCKS[:3], fewer, *BLOCKS[4:]).mutations(BLOCKS[0]))
    assert found
    assert all(len(one.sites) == 1 for one in found if 0 in replayed_calls([one]))


def test_what_writes_in_place_is_in_no_span() -> None:
    blocks = [call(0, "relu_", "input:0"), call(1, "linear", "op:0"), call(2, "add", "op:1")]
    assert spans(*blocks).spans_from("input:0") == []
