"""Pair parameters by their role in the computation of both models.

A model's modules are nodes, each with the shapes of its tensors. An edge leads from one node to the
next whose operation its numbers reach without passing another parameter. Nodes are distinguished by
their neighbourhoods, step by step (the colour refinement of Weisfeiler and Leman, 1968). Two nodes
are partners if each is the only one on its side with that neighbourhood, as far out as the two
graphs agree. Names do not matter, nor the order in which the frameworks list parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dualml.parity.models.mapping import COUNTERS
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.partners import Tensor, canonical_name

#: Largest radius of a neighbourhood; deep models have some hundred layers.
MAX_RADIUS = 200
PREFIX = "parameter:"


@dataclass
class ParameterGraph:
    """The graph of a model's parameters; a node is a module, named like it, with its own tensors.

    Attributes:
        tensors: node → its tensors, by the last part of their name in PyTorch's terms.
        before, after: node → the nodes that its inputs come from, ``input`` among them, and those
            that its outputs go to.
    """

    tensors: dict[str, dict[str, Tensor]]
    before: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    after: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def shape_label(self, node: str) -> int:
        """Return a label of a node from the shapes of its trained tensors alone; equal for
        transposed shapes."""
        shapes = [
            tuple(sorted(n for n in one.shape if n > 1))
            for one in self.tensors[node].values()
            if one.trained
        ]
        return hash(tuple(sorted(shapes)))

    def refine_labels(self, known: Mapping[str, int]) -> list[dict[str, int]]:
        """Return for each radius of the neighbourhood, from 0 (shapes alone), node → label; equal
        labels mean equal neighbourhoods.

        Ends early when a larger radius distinguishes no further nodes.

        Args:
            known: nodes whose partners are known → a label that the two have in common.
        """
        rounds = [{node: known.get(node, self.shape_label(node)) for node in self.tensors}]
        while len(rounds) <= MAX_RADIUS:
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


def build_graph(operations: Sequence[Operation], tensors: Sequence[Tensor]) -> ParameterGraph:
    """Return the parameter graph of a model from the operations of a forward pass. The tensors of
    one module form one node; those that only count batches (`COUNTERS`) are left out."""
    owner = owning_modules([one for one in tensors if one.name.rpartition(".")[2] not in COUNTERS])
    nodes: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for one in tensors:
        if one.name in owner:
            nodes[owner[one.name]][canonical_name(one.name).rpartition(".")[2]] = one
    result = ParameterGraph(dict(nodes))
    reached: dict[int, frozenset[str]] = {}
    for call in operations:
        own = {owner[n] for n in used_parameters(call.inputs) if n in owner}
        before = frozenset[str]().union(*(source_nodes(one, reached) for one in call.inputs))
        for node in own:
            result.before[node] |= before - {node}
            for source in before - {node}:
                result.after[source].add(node)
        reached[call.number] = frozenset(own) or before
    return result


def owning_modules(tensors: Iterable[Tensor]) -> dict[str, str]:
    """Return name of a tensor → name of its module, which is its node; a tensor in a module that
    has submodules with tensors is a node of its own, under its own name."""
    modules = {one.name.rpartition(".")[0] for one in tensors}
    inner = {name[:i] for name in modules for i, sign in enumerate(name) if sign == "."}
    inner |= {""} if len(modules) > 1 else set()
    return {
        one.name: one.name if (module := one.name.rpartition(".")[0]) in inner else module
        for one in tensors
    }


def used_parameters(inputs: Iterable[str]) -> list[str]:
    """Return the parameter names among the inputs of a call, without their prefix."""
    return [one.removeprefix(PREFIX) for one in inputs if one.startswith(PREFIX)]


def source_nodes(name: str, reached: Mapping[int, frozenset[str]]) -> frozenset[str]:
    """Return the nodes that a value of the trace comes from without passing another parameter;
    ``input`` for an input of the model, none for other values that no call computed.

    Args:
        reached: number of a call → the nodes that its outputs come from.
    """
    if name.startswith("input:"):
        return frozenset(["input"])
    number = call_number(name)
    return frozenset() if number is None else reached.get(number, frozenset())


def match_roles(a: ParameterGraph, b: ParameterGraph) -> dict[str, str]:
    """Return name in ``a`` → name in ``b`` of the tensors in nodes whose neighbourhoods are
    unambiguous; other tensors are left out."""
    pairs: dict[str, str] = {}
    while further := match_unique_nodes(a, b, pairs):  # known pairs distinguish their neighbours
        pairs |= further
    return {
        one.name: partner.name
        for x, y in pairs.items()
        for last, one in a.tensors[x].items()
        if (partner := find_partner(last, one, b.tensors[y])) is not None
    }


def match_unique_nodes(
    a: ParameterGraph, b: ParameterGraph, pairs: Mapping[str, str]
) -> dict[str, str]:
    """Return node in ``a`` → node in ``b`` of further nodes whose label is unique on both sides,
    compared from the largest radius down to 1.

    Args:
        pairs: nodes that are paired already.
    """
    known = {x: hash(("pair", number)) for number, x in enumerate(pairs)}
    partners = {y: known[x] for x, y in pairs.items()}
    further: dict[str, str] = {}
    rounds = list(zip(a.refine_labels(known), b.refine_labels(partners), strict=False))
    for of_a, of_b in reversed(rounds[1:]):  # the first round has shapes only
        by_a = group_nodes(of_a, {*pairs, *further})
        by_b = group_nodes(of_b, {*partners, *further.values()})
        for label, nodes in by_a.items():
            others = by_b.get(label, [])
            if len(nodes) == len(others) == 1:
                further[nodes[0]] = others[0]
    return further


def find_partner(last: str, one: Tensor, others: Mapping[str, Tensor]) -> Tensor | None:
    """Return the tensor of the partner node with the last name ``last``, or else the only one that
    has the shape of ``one`` and is trained likewise; None if there is none."""
    if last in others:
        return others[last]
    alike = [x for x in others.values() if (x.trained, x.shape) == (one.trained, one.shape)]
    return alike[0] if len(alike) == 1 else None


def group_nodes(labels: Mapping[str, int], without: set[str]) -> dict[int, list[str]]:
    """Return label → nodes that have it, without the nodes in ``without``."""
    groups: dict[int, list[str]] = defaultdict(list)
    for node, label in labels.items():
        if node not in without:
            groups[label].append(node)
    return groups
