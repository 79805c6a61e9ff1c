"""Parts of a model that stand elsewhere: a norm behind the block in place of before it, two modules in
the other order, a block done once more, a rotation of the values, too.

A *span* is a run of calls with one way in and one way out: from a value, by some or all of the calls
that take it, to the only value that is taken further. Other values may enter (a mask, the residual).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dualml.parity.causes.alteration import Alteration, Shape
from dualml.parity.models.operations import Operation, number_of

#: Calls of a span at most; how far before a place spans begin; spans of a place at most.
LONGEST, BACK, MOST = 60, 40, 300
#: How many calls before a place two spans begin that stand in the other order.
DEPTH = 2


@dataclass(frozen=True)
class Span:
    """Calls from ``entry`` to ``exit``.

    Attributes:
        takers: the calls that take the entry inside of it; others may take it outside.
    """

    entry: str
    takers: tuple[int, ...]
    calls: tuple[int, ...]
    exit: str

    def plan(self) -> tuple[Any, ...]:
        return self.entry, self.takers, self.calls, self.exit


class Spans:
    """The spans of one step's calls.

    Args:
        consumers: name of a value → the calls that take it.
    """

    def __init__(
        self, operations: Sequence[Operation], consumers: Mapping[str, Sequence[int]]
    ) -> None:
        self.operations, self.consumers = operations, consumers
        self.shapes: dict[str, Shape] = {
            name: shape
            for one in operations
            for name, shape in zip(one.names(), one.outputs, strict=True)
        }

    def alterations(self, site: Operation) -> Iterator[Alteration]:
        """What could stand elsewhere around a call whose output is the first that is lost."""
        given = [
            name
            for name in dict.fromkeys(site.inputs)
            if name in self.shapes and len(self.shapes[name]) > 1
        ]
        rows = [*self.exchanged(self.before(given)), *self.again(given), *self.applied(site, given)]
        for change in rows[:MOST]:
            everywhere = self.everywhere(change)
            if len(everywhere) > 1:
                yield change.at(everywhere)
            yield change

    def before(self, given: Sequence[str]) -> list[str]:
        """These values and what they were made of: a fresh norm gives what any other gives."""
        names, front = dict.fromkeys(given), list(given)
        for _ in range(DEPTH):
            made = [self.operations[n] for name in front if (n := number_of(name)) is not None]
            front = [n for one in made for n in one.inputs if len(self.shapes.get(n, ())) > 1]
            names |= dict.fromkeys(front)
        return list(names)

    def exchanged(self, given: Sequence[str]) -> Iterator[Alteration]:
        """Two spans that follow one another, in the other order."""
        for name in given:
            for one in self.of(name):
                for other in self.of(one.exit, whole=True):
                    if self.shapes[other.exit] == self.shapes[name] == self.shapes[one.exit]:
                        steps = (other.plan(), one.plan())
                        yield self.alteration("order", other, name, steps, self.label(one))

    def again(self, given: Sequence[str]) -> Iterator[Alteration]:
        """A span that ends here, done once more."""
        for name in given:
            end = number_of(name) or 0
            starts = [
                n
                for one in self.operations[max(end - BACK, 0) : end]
                for n in one.names()
                if self.shapes[n] == self.shapes[name]
            ]
            for start in reversed(starts):
                for span in self.of(start):
                    if span.exit == name and len(span.calls) > 1:
                        yield self.alteration("extra", span, "", (span.plan(),), "")

    def applied(self, site: Operation, given: Sequence[str]) -> Iterator[Alteration]:
        """A span near the call is applied to another of its operands, too."""
        first = max(site.number - BACK, 0)
        starts = [n for one in self.operations[first : site.number] for n in one.names()]
        for start in reversed(starts):
            for span in self.of(start):
                if span.calls[-1] >= site.number or not self.computes(span):
                    continue
                for name in given:
                    if (
                        self.shapes[name] == self.shapes[start] == self.shapes[span.exit]
                        and name not in (start, span.exit)
                        and (number_of(name) or 0) not in span.calls
                    ):
                        at = site.inputs.index(name)
                        value = (name, (span.plan(),))
                        yield Alteration(
                            "extra", "spans", (site.number,), site.name, at, value, self.label(span)
                        )

    def of(self, name: str, whole: bool = False) -> list[Span]:
        """Spans that begin at a value.

        Args:
            whole: only those that hold all calls that take it.
        """
        takers = tuple(dict.fromkeys(self.consumers.get(name, ())))
        groups = [takers]
        if not whole and len(takers) > 1:
            groups += [(one,) for one in takers]
            by_module = groupby(takers, key=lambda n: self.operations[n].module)
            groups += [tuple(some) for _, some in by_module]
        return [span for some in dict.fromkeys(groups) if some for span in self.grown(name, some)]

    def grown(self, name: str, takers: tuple[int, ...]) -> Iterator[Span]:
        """Call by call: wherever one value alone is still to be taken, a span ends."""
        left: dict[str, int] = {}
        calls: list[int] = []
        for number in range(takers[0], min(takers[0] + 4 * LONGEST, len(self.operations))):
            one = self.operations[number]
            taken = [n for n in dict.fromkeys(one.inputs) if n in left]
            if number not in takers and not taken:
                continue
            if writes(one.name) or len(calls) == LONGEST:
                return
            calls.append(number)
            for n in taken:
                left[n] -= 1
            left |= {n: len(dict.fromkeys(self.consumers.get(n, ()))) for n in one.names()}
            waiting = [n for n, count in left.items() if count]
            if number >= takers[-1] and len(waiting) == 1 and waiting[0] in one.names():
                yield Span(name, takers, tuple(calls), waiting[0])

    def computes(self, span: Span) -> bool:
        """Whether it does more than to move elements."""
        shapes = {self.operations[n].name for n in span.calls}
        return not shapes <= {
            "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "contiguous",
            "flatten", "unflatten", "expand", "__getitem__", "chunk", "split", "to", "float",
        }  # fmt: skip

    def alteration(
        self, kind: str, last: Span, source: str, steps: tuple[Any, ...], label: str
    ) -> Alteration:
        site = self.operations[number_of(last.exit) or 0]
        value = (source, steps)
        return Alteration(kind, "spans", (site.number,), self.label(last), "", value, label)

    def label(self, span: Span) -> str:
        """The innermost module that holds all of it, else its first and its last function."""
        modules = {self.operations[n].module for n in span.calls}
        if len(modules) == 1 and (module := modules.pop()):
            own = [one.number for one in self.operations if one.module == module]
            if set(own) == set(span.calls):
                return module
        ends = [self.operations[n].name for n in (span.calls[0], span.calls[-1])]
        return " … ".join(dict.fromkeys(ends))

    def everywhere(self, change: Alteration) -> tuple[int, ...]:
        """The same calls in other instances of the module, too: the same lines, the same order."""
        site = change.sites[0]
        numbers = [n for step in change.value[1] for n in step[2]]
        return tuple(
            one.number
            for one in self.operations
            if one.place == self.operations[site].place
            and all(
                0 <= n + one.number - site < len(self.operations)
                and self.like(n, n + one.number - site)
                for n in [site, *numbers]
            )
        )

    def like(self, x: int, y: int) -> bool:
        one, other = self.operations[x], self.operations[y]
        return (one.name, one.place) == (other.name, other.place)


def writes(name: str) -> bool:
    """Whether a call writes into a tensor that others hold."""
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def moved(name: str, by: int) -> str:
    """``op:12[1]`` so many calls later."""
    number = number_of(name)
    return name if number is None else f"op:{number + by}{name[name.find('[') :] if '[' in name else ''}"


def through(
    change: Alteration,
    number: int,
    value: Any,
    run: Callable[[int, dict[str, Any]], Sequence[Any]],
) -> Any:
    """What comes out when the steps of a plan are made one after the other.

    Args:
        number: the call at which it is done.
        value: what goes in.
        run: makes a call again with some of its inputs replaced, and gives its outputs.
    """
    by = number - change.sites[0]
    for entry, takers, calls, end in change.value[1]:
        made: dict[str, Any] = {}
        for call in calls:
            given = {moved(entry, by): value} if call in takers else {}
            outputs = run(call + by, made | given)
            made |= {moved(f"op:{call}" + (f"[{i}]" if i else ""), by): one
                     for i, one in enumerate(outputs)}  # fmt: skip
        value = made[moved(end, by)]
    return value


def calls_of(changes: Sequence[Alteration]) -> frozenset[int]:
    """The calls that have to be kept, to be made again."""
    return frozenset(
        call + site - change.sites[0]
        for change in changes
        if change.action == "spans"
        for _, _, calls, _ in change.value[1]
        for call in calls
        for site in change.sites
    )


def within(operations: Sequence[Operation], changes: Sequence[Alteration]) -> frozenset[str]:
    """Modules whose last call is made elsewhere."""
    calls = calls_of([one for one in changes if one.kind == "order"])
    last = {}
    for one in operations if calls else ():
        parts = one.module.split(".")
        last |= {".".join(parts[:n]): one.number for n in range(1, len(parts) + 1)}
    return frozenset(name for name, number in last.items() if name and number in calls)
