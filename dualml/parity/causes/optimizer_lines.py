"""Enumerate mutations of the source lines of a user's own optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualml.parity.causes.mutation import Mutation, MutationContext
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.models.operations import Operation

ACTIONS = ("set", "function", "instead", "drop", "exchange")
#: Functions that may be applied additionally.
EXTRAS = ("sqrt", "square", "abs", "negative", "reciprocal", "sign")
#: Names of the current parameter and of its gradient.
PARAMETER, GRADIENT = "parameter", "gradient"
#: Calls that initialize a state → values that may initialize it instead.
BEGIN = dict.fromkeys(("zeros_like", "ones_like", "full_like", "zeros"), (PARAMETER, GRADIENT))


def line_mutations(calls: Sequence[Operation], numbers: Sequence[float]) -> Iterator[Mutation]:
    """Yield mutations of every expression in an optimizer's step, except lines that call
    ``super()``.

    Args:
        calls: operations of one step; parameters and gradients are ``parameter:0``, ``gradient:0``.
        numbers: constants that are common in optimizers.
    """
    shapes = {
        name: s for one in calls for name, s in zip(one.output_names(), one.outputs, strict=True)
    }
    around = MutationContext(tuple(numbers), (), shapes, {}, ())
    # Without the lines of PyTorch's own class.
    ones = {
        (expression_key(one), one.name): one
        for one in reversed(calls)
        if "super(" not in expression_key(one)
    }

    def alter(one: Operation, action: str, argument: str | int, value: object) -> Mutation:
        """Return a mutation of the line of one call."""
        action = f"line:{action}"
        return Mutation(
            "optimizer", action, (), one.name, argument, value, line=expression_key(one)
        )

    for one in ones.values():
        takers = [
            x
            for x in calls
            if f"op:{one.number}" in x.inputs and expression_key(x) != expression_key(one)
        ]
        if takers and len(one.inputs) == 1 and one.name not in BEGIN:
            yield alter(one, "swap", takers[0].name, expression_key(takers[0]))
        yield from (alter(one, "begin", "", name) for name in BEGIN.get(one.name, ()))
        if one.name.endswith("_"):
            yield alter(one, "late", "", None)
    for one in ones.values():
        given = [shapes.get(name, ()) for name in one.inputs]
        for change in candidate_mutations(one, given, around):
            if change.action in ACTIONS or (
                change.action in ("output", "input") and change.value[0] in EXTRAS
            ):
                action = f"line:{change.action}"
                yield replace(
                    change, kind="optimizer", action=action, sites=(), line=expression_key(one)
                )
    for one in ones.values():
        others = dict.fromkeys([PARAMETER, GRADIENT, *earlier_expressions(calls, one)])
        for i, own in enumerate(one.inputs):
            made = {f"op:{x.number}": expression_key(x) for x in calls}.get(
                own, own.partition(":")[0]
            )
            yield from (alter(one, "operand", i, name) for name in others if name != made)


def earlier_expressions(calls: Sequence[Operation], one: Operation) -> Iterator[str]:
    """Yield the expressions of calls before ``one`` whose first output has the shape of its first
    output."""
    yield from (
        expression_key(x) for x in calls[: calls.index(one)] if x.outputs[:1] == one.outputs[:1]
    )


def expression_key(one: Operation) -> str:
    """Return ``LINE:CODE`` of the call's expression; empty if its place is unknown."""
    return "" if one.place is None else f"{one.place.line}:{one.place.code}"
