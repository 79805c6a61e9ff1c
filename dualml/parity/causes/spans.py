"""Enumerate mutations that move whole parts of a model.

Examples: a norm after the block instead of before it, two modules swapped, a block repeated, a
rotation that is also applied to the values.

A *span* is a sequence of calls with one entry and one exit: from a value, through some or all of
the calls that take it, to the only value that is used further. Other values may enter, for example
a mask or the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dualml.parity.causes.mutation import Mutation, Shape
from dualml.parity.causes.tables import ACTIVATIONS, ELEMENTWISE, OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation, call_number, value_name

#: Maximum number of calls of a span; maximum number of calls before a place at which spans begin;
#: maximum number of spans per place.
MAX_SPAN_CALLS, MAX_LOOKBACK_CALLS, MAX_SPANS = 60, 40, 300
#: Maximum number of modules that a label names.
MAX_NAMED_MODULES = 3
#: Largest number of calls of a formula, which are elementwise functions.
FORMULA = 5
#: How many calls before a place two swapped spans may begin.
DEPTH = 2


#: A call, the value that enters there (see `plan_source`), and the steps that are run.
Plan = tuple[int, str, tuple[Any, ...]]
#: A plan, and the mutation without it.
Row = tuple[int, str, tuple[Any, ...], Mutation]


@dataclass(frozen=True)
class CallSpan:
    """A sequence of calls from the value ``entry`` to the value ``exit``.

    Attributes:
        takers: the calls of the span that take the entry; others outside may take it, too.
        calls: numbers of all calls of the span, in order.
    """

    entry: str
    takers: tuple[int, ...]
    calls: tuple[int, ...]
    exit: str

    def plan(self) -> tuple[Any, ...]:
        """Return the span as a tuple (entry, takers, calls, exit), for a mutation's value."""
        return self.entry, self.takers, self.calls, self.exit


class SpanFinder:
    """A finder of spans among the calls of one step, and of mutations that move them.

    A plan of such a mutation is (call, value that enters there, steps that are run one after the
    other); its steps are spans, or one function with its numbers.

    Args:
        operations: the calls, in order.
        consumers: name of a value → the calls that take it.
        inputs: name of an input → its shape.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        consumers: Mapping[str, Sequence[int]],
        inputs: Mapping[str, Shape],
    ) -> None:
        self.operations, self.consumers = operations, consumers
        self.seen: set[Mutation] = set()
        self.shapes: dict[str, Shape] = {
            name: shape
            for one in operations
            for name, shape in zip(one.output_names(), one.outputs, strict=True)
        }
        self.shapes |= inputs
        #: Name of a module → its first and its last call.
        self.modules: dict[str, tuple[int, int]] = {}
        for one in operations:
            parts = one.module.split(".") if one.module else []
            for name in (".".join(parts[:n]) for n in range(1, len(parts) + 1)):
                first = self.modules.get(name, (one.number,))[0]
                self.modules[name] = (first, one.number)

    def mutations(self, site: Operation) -> Iterator[Mutation]:
        """Yield mutations that move spans around a call whose output is the first unmatched value;
        inputs with fewer than two axes are left out.

        Each is made at all instances of its module, then at this place alone. A mutation that this
        finder yielded before, from another place, is left out.
        """
        given = [
            name
            for name in dict.fromkeys(site.inputs)
            if name in self.shapes and len(self.shapes[name]) > 1
        ]
        rows = [
            *self.swap_order(self.upstream(given)),
            *self.delay_call(site, given),
            *self.fuse_pointwise(given),
            *self.repeat_block(given),
            *self.apply_to_other_input(site, given),
        ]
        for at, begin, steps, change in dict.fromkeys(rows[:MAX_SPANS]):
            own = (at, begin, steps)
            every = self.lift_to_instances(own)
            for plans in (every, (own,))[len(every) < 2 :]:
                found = replace(change, value=plans).with_sites(plan[0] for plan in plans)
                if found not in self.seen:  # found from another place before
                    self.seen.add(found)
                    yield found

    def upstream(self, given: Sequence[str]) -> list[str]:
        """Return these values and the values with two or more axes that they were computed from, up
        to `DEPTH` calls back.

        A newly initialized norm gives the same output as any other, so a swap may begin earlier.
        """
        names, front = dict.fromkeys(given), list(given)
        for _ in range(DEPTH):
            made = [self.operations[n] for name in front if (n := call_number(name)) is not None]
            front = [n for one in made for n in one.inputs if len(self.shapes.get(n, ())) > 1]
            names |= dict.fromkeys(front)
        return list(names)

    def swap_order(self, given: Sequence[str]) -> Iterator[Row]:
        """Yield plans, with their mutations, that swap two consecutive spans which keep the
        shape."""
        for name in given:
            for one in self.spans_from(name):
                for other in self.spans_from(one.exit, whole=True):
                    if self.shapes[other.exit] == self.shapes[name] == self.shapes[one.exit]:
                        change = self.make_mutation("order", self.label(other), self.label(one))
                        steps = (other.plan(), one.plan())
                        yield call_number(other.exit) or 0, name, steps, change

    def delay_call(self, site: Operation, given: Sequence[str]) -> Iterator[Row]:
        """Yield plans, with their mutations, that make a call later, where its output is used, with
        an operand computed by then."""
        out = site.output_names()[0]
        takers = sorted(self.consumers.get(out, ()))
        for name in given if takers else ():
            step = (name, (site.number,), (site.number,), out)
            for one in self.operations[site.number + 1 : takers[0]]:
                for other in one.output_names():
                    if self.shapes[other] == self.shapes[name]:
                        for taker in takers:
                            at = self.operations[taker].inputs.index(out)
                            change = self.make_mutation("operand", site.name, other)
                            yield taker, other, (step,), replace(change, argument=at)

    def fuse_pointwise(self, given: Sequence[str]) -> Iterator[Row]:
        """Yield plans, with their mutations, that replace a short elementwise formula such as
        ``relu6(x + 3) / 6`` by one function."""
        for name in given:
            for span in self.spans_from(name):
                names = {
                    OPERATOR_FUNCTIONS.get(n, n)
                    for n in (self.operations[c].name for c in span.calls)
                }
                if 1 < len(span.calls) <= FORMULA and names <= ELEMENTWISE:
                    for function in ACTIVATIONS:
                        change = self.make_mutation("function", function[0], self.label(span))
                        yield span.calls[-1], name, (function,), change

    def repeat_block(self, given: Sequence[str]) -> Iterator[Row]:
        """Yield plans, with their mutations, that repeat a span of several calls which ends at one
        of these values and keeps the shape."""
        for name in given:
            end = call_number(name) or 0
            starts = [
                n
                for one in self.operations[max(end - MAX_LOOKBACK_CALLS, 0) : end]
                for n in one.output_names()
                if self.shapes[n] == self.shapes[name]
            ]
            for start in reversed(starts):
                for span in self.spans_from(start):
                    if span.exit == name and len(span.calls) > 1:
                        yield end, "", (span.plan(),), self.make_mutation("extra", self.label(span))

    def apply_to_other_input(self, site: Operation, given: Sequence[str]) -> Iterator[Row]:
        """Yield plans, with their mutations, that also apply a nearby span to another operand of
        the call."""
        first = max(site.number - MAX_LOOKBACK_CALLS, 0)
        starts = [n for one in self.operations[first : site.number] for n in one.output_names()]
        for start in reversed(starts):
            for span in self.spans_from(start):
                if span.calls[-1] >= site.number or not self.has_computation(span):
                    continue
                for name in given:
                    if (
                        self.shapes[name] == self.shapes[start] == self.shapes[span.exit]
                        and name not in (start, span.exit)
                        and call_number(name) not in span.calls
                    ):
                        change = self.make_mutation("extra", site.name, self.label(span))
                        change = replace(change, argument=site.inputs.index(name))
                        yield site.number, name, (span.plan(),), change

    def spans_from(self, name: str, whole: bool = False) -> list[CallSpan]:
        """Return the spans that begin at a value.

        Args:
            whole: only those that contain all calls that take the value.
        """
        takers = tuple(dict.fromkeys(self.consumers.get(name, ())))
        groups = [takers]
        if not whole and len(takers) > 1:
            groups += [(one,) for one in takers]
            by_module = groupby(takers, key=lambda n: self.operations[n].module)
            groups += [tuple(some) for _, some in by_module]
        return [span for some in dict.fromkeys(groups) if some for span in self.grow(name, some)]

    def grow(self, name: str, takers: tuple[int, ...]) -> Iterator[CallSpan]:
        """Yield the spans that begin with these calls, extended call by call.

        A span ends wherever exactly one of its values, the last call's, is still to be used; none
        contains a call that works in place.
        """
        left: dict[str, int] = {}
        calls: list[int] = []
        for number in range(takers[0], min(takers[0] + 4 * MAX_SPAN_CALLS, len(self.operations))):
            one = self.operations[number]
            taken = [n for n in dict.fromkeys(one.inputs) if n in left]
            if number not in takers and not taken:
                continue
            if is_inplace_name(one.name) or len(calls) == MAX_SPAN_CALLS:
                return
            calls.append(number)
            for n in taken:
                left[n] -= 1
            left |= {n: len(dict.fromkeys(self.consumers.get(n, ()))) for n in one.output_names()}
            waiting = [n for n, count in left.items() if count]
            if number >= takers[-1] and len(waiting) == 1 and waiting[0] in one.output_names():
                yield CallSpan(name, takers, tuple(calls), waiting[0])

    def has_computation(self, span: CallSpan) -> bool:
        """Return whether a span computes anything, as opposed to only moving elements."""
        shapes = {self.operations[n].name for n in span.calls}
        return not shapes <= {
            "view",
            "reshape",
            "transpose",
            "permute",
            "unsqueeze",
            "squeeze",
            "contiguous",
            "flatten",
            "unflatten",
            "expand",
            "__getitem__",
            "chunk",
            "split",
            "to",
            "float",
        }

    def make_mutation(self, kind: str, label: str, old: str = "") -> Mutation:
        """Return a mutation with the action ``spans`` and no plan yet."""
        return Mutation(kind, "spans", (), label, "", None, old)

    def label(self, span: CallSpan) -> str:
        """Return, as text, the names of up to MAX_NAMED_MODULES modules that a span contains
        completely, or else its first and last function."""
        inside = [
            m
            for m, (first, last) in self.modules.items()
            if first >= span.calls[0] and last <= span.calls[-1]
        ]
        outermost = [m for m in inside if not any(m.startswith(f"{n}.") for n in inside)]
        if 0 < len(outermost) <= MAX_NAMED_MODULES:
            return ", ".join(outermost)
        ends = [self.operations[n].name for n in (span.calls[0], span.calls[-1])]
        return " … ".join(dict.fromkeys(ends))

    def lift_to_instances(self, plan: Plan) -> tuple[Plan, ...]:
        """Return the plan at every instance of the module, this one included: the same source lines
        in the same order."""
        site, source, steps = plan
        spans = [step for step in steps if is_span(step)]
        calls = [n for step in spans for n in step[2]]
        plans = []
        for one in self.operations:
            by = one.number - site
            last = len(self.operations) - by
            if one.place == self.operations[site].place and all(
                -by <= n < last and self.is_same_call(n, n + by) for n in (site, *calls)
            ):
                there = tuple(
                    (
                        self.input_at(entry, takers[0], by),
                        tuple(n + by for n in takers),
                        tuple(n + by for n in numbers),
                        shift_name(end, by),
                    )
                    for entry, takers, numbers, end in spans
                )
                begin = source
                if source and source in [step[0] for step in spans]:
                    begin = there[[step[0] for step in spans].index(source)][0]
                elif source:
                    begin = shift_name(source, by)
                plans.append((one.number, begin, there if spans else steps))
        return tuple(plans)

    def input_at(self, name: str, taker: int, by: int) -> str:
        """Return the input that call ``taker + by`` takes at the position where call ``taker``
        takes ``name``."""
        return self.operations[taker + by].inputs[self.operations[taker].inputs.index(name)]

    def is_same_call(self, x: int, y: int) -> bool:
        """Return whether two calls have the same function, source line and number of inputs."""
        one, other = self.operations[x], self.operations[y]
        same = (one.name, one.place) == (other.name, other.place)
        return same and len(one.inputs) == len(other.inputs)


def is_inplace_name(name: str) -> bool:
    """Return whether a call's name is that of a method that modifies a tensor in place:
    ``__setitem__``, or a trailing underscore as in ``add_``."""
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def shift_name(name: str, by: int) -> str:
    """Return a value name shifted by a number of calls, such as ``op:15[1]`` for ``op:12[1]``;
    names of parameters and inputs stay."""
    number = call_number(name)
    return (
        name
        if number is None
        else f"op:{number + by}{name[name.find('[') :] if '[' in name else ''}"
    )


def is_span(step: tuple[Any, ...]) -> bool:
    """Return whether a step of a plan is a span, as opposed to a function name with its numbers."""
    return len(step) == 4 and isinstance(step[2], tuple)


def plan_source(change: Mutation, number: int) -> str:
    """Return the value that enters a plan at a call; empty for the output of the call itself."""
    return str(next(plan for plan in change.value if plan[0] == number)[1])


def run_plan(
    change: Mutation,
    number: int,
    value: Any,
    run: Callable[[int, dict[str, Any]], Sequence[Any]],
    function: Callable[[Any, Any], Any],
) -> Any:
    """Run the steps of a plan one after the other, and return the result.

    Args:
        change: the mutation that holds the plan.
        number: the call at which it is run.
        value: the value that enters.
        run: repeats a call with some of its inputs replaced, and returns its outputs.
        function: applies a step that is a backend's function (its name, then its numbers) to a
            value.
    """
    for step in next(plan for plan in change.value if plan[0] == number)[2]:
        if not is_span(step):
            value = function(step, value)
            continue
        entry, takers, calls, end = step
        made: dict[str, Any] = {}
        for call in calls:
            outputs = run(call, made | ({entry: value} if call in takers else {}))
            made |= {value_name(call, i): one for i, one in enumerate(outputs)}
        value = made[end]
    return value


def replayed_calls(changes: Sequence[Mutation]) -> frozenset[int]:
    """Return the calls whose inputs must be kept because mutations with the action ``spans`` repeat
    them."""
    return frozenset(
        call
        for change in changes
        if change.action == "spans"
        for _, _, steps in change.value
        for step in steps
        if is_span(step)
        for call in step[2]
    )


def relocated_modules(
    operations: Sequence[Operation], changes: Sequence[Mutation]
) -> frozenset[str]:
    """Return the modules whose last call a span mutation of kind ``order`` or ``operand`` moves
    elsewhere."""
    calls = replayed_calls([one for one in changes if one.kind in ("order", "operand")])
    last: dict[str, int] = {}
    for one in operations if calls else ():
        parts = one.module.split(".")
        last |= {".".join(parts[:n]): one.number for n in range(1, len(parts) + 1)}
    return frozenset(name for name, number in last.items() if name and number in calls)
