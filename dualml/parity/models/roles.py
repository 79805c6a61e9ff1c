"""Which parameter is which, from what the two models do with them.

A model's modules are nodes, each with the shapes of its tensors; an edge leads from one to the next
whose operation its numbers reach with no other parameter between. Nodes are told apart by their
surroundings, step by step (the colour refinement of Weisfeiler and Leman, 1968), and those that
alone on their side have the same surroundings, as far out as the two graphs agree, are partners.
Names do not matter, nor in which order the frameworks list them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dualml.parity.models.mapping import COUNTERS
from dualml.parity.models.operations import Operation, number_of
from dualml.parity.models.partners import Tensor, canonical

#: Steps out at most; deep models have some hundred layers.
FARTHEST = 200
PREFIX = "parameter:"


@dataclass
class Graph:
    """What a model does with its parameters.

    Attributes:
        tensors: node → its tensors, by the last part of their name in PyTorch's words.
        before, after: node → its neighbours, ``input`` among them.
    """

    tensors: dict[str, dict[str, Tensor]]
    before: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    after: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def label(self, node: str) -> int:
        """Of its tensors alone."""
        shapes = [tuple(sorted(n for n in one.shape if n > 1))
                  for one in self.tensors[node].values() if one.trained]  # fmt: skip
        return hash(tuple(sorted(shapes)))

    def labels(self, known: Mapping[str, int]) -> list[dict[str, int]]:
        """Of each node, from nearest to farthest; ends early where nothing new is told apart.

        Args:
            known: nodes whose partners are known, with what the two have in common alone.
        """
        rounds = [{node: known.get(node, self.label(node)) for node in self.tensors}]
        while len(rounds) <= FARTHEST:
            last = {**rounds[-1], "input": 1}
            rounds.append(
                {
                    node: hash(
                        (
                            last[node],
                            tuple(sorted(last[one] for one in self.before[node])),
                            tuple(sorted(last[one] for one in self.after[node])),
                        )
                    )
                    for node in self.tensors
                }
            )
            if len(set(rounds[-1].values())) == len(set(rounds[-2].values())):
                break
        return rounds


def graph(operations: Sequence[Operation], tensors: Sequence[Tensor]) -> Graph:
    """Modules that use their tensors one right after the other are one node."""
    owner = owners([one for one in tensors if one.name.rpartition(".")[2] not in COUNTERS])
    nodes: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for one in tensors:
        if one.name in owner:
            nodes[owner[one.name]][canonical(one.name).rpartition(".")[2]] = one
    result = Graph(dict(nodes))
    reached: dict[int, frozenset[str]] = {}
    for call in operations:
        own = {owner[n] for n in used(call.inputs) if n in owner}
        before = frozenset[str]().union(*(sources(one, reached) for one in call.inputs))
        for node in own:
            result.before[node] |= before - {node}
            for source in before - {node}:
                result.after[source].add(node)
        reached[call.number] = frozenset(own) or before
    return result


def owners(tensors: Iterable[Tensor]) -> dict[str, str]:
    """Tensor → the module that has it; a tensor beside whole modules stands for itself."""
    modules = {one.name.rpartition(".")[0] for one in tensors}
    inner = {name[:i] for name in modules for i, sign in enumerate(name) if sign == "."}
    inner |= {""} if len(modules) > 1 else set()
    return {
        one.name: one.name if (module := one.name.rpartition(".")[0]) in inner else module
        for one in tensors
    }


def used(inputs: Iterable[str]) -> list[str]:
    return [one.removeprefix(PREFIX) for one in inputs if one.startswith(PREFIX)]


def sources(name: str, reached: Mapping[int, frozenset[str]]) -> frozenset[str]:
    if name.startswith("input:"):
        return frozenset(["input"])
    number = number_of(name)
    return frozenset() if number is None else reached.get(number, frozenset())


def roles(a: Graph, b: Graph) -> dict[str, str]:
    """Tensors of ``a`` → of ``b``, where their surroundings leave no choice."""
    pairs: dict[str, str] = {}
    while further := alone(a, b, pairs):  # what has a partner tells its neighbours apart
        pairs |= further
    return {
        one.name: partner.name
        for x, y in pairs.items()
        for last, one in a.tensors[x].items()
        if (partner := partner_of(last, one, b.tensors[y])) is not None
    }


def alone(a: Graph, b: Graph, pairs: Mapping[str, str]) -> dict[str, str]:
    """Further nodes that alone on their side have the same surroundings, seen as far as can be."""
    known = {x: hash(("pair", number)) for number, x in enumerate(pairs)}
    partners = {y: known[x] for x, y in pairs.items()}
    further: dict[str, str] = {}
    rounds = list(zip(a.labels(known), b.labels(partners), strict=False))
    for of_a, of_b in reversed(rounds[1:]):  # the first knows shapes alone
        by_a = grouped(of_a, {*pairs, *further})
        by_b = grouped(of_b, {*partners, *further.values()})
        for label, nodes in by_a.items():
            others = by_b.get(label, [])
            if len(nodes) == len(others) == 1:
                further[nodes[0]] = others[0]
    return further


def partner_of(last: str, one: Tensor, others: Mapping[str, Tensor]) -> Tensor | None:
    """By its name within the module, else by its shape where that leaves no choice."""
    if last in others:
        return others[last]
    alike = [x for x in others.values() if (x.trained, x.shape) == (one.trained, one.shape)]
    return alike[0] if len(alike) == 1 else None


def grouped(labels: Mapping[str, int], without: set[str]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = defaultdict(list)
    for node, label in labels.items():
        if node not in without:
            groups[label].append(node)
    return groups
