"""Enumerate mutations for parameters that only one side has.

These are biases, and modules that one side uses in several places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dualml.parity.causes.mutation import Mutation, Shape
from dualml.parity.models.partners import Pairing, Tensor, apply_change, find_change
from dualml.parity.models.trace import Trace

#: Maximum number of modules that are tried in place of one.
MAX_CANDIDATES = 8


def sharing_mutations(a: Trace, pairing: Pairing) -> list[Mutation]:
    """Return up to MAX_CANDIDATES mutations, each of which replaces all modules that only the first
    side has by similar ones: other modules of this side with the same parameter names and shapes.
    Modules without a similar one stay; empty if none has one."""
    alone = {one.name: one.shape for one in a.tensors if one.name in pairing.unpaired_parameters[0]}
    paired = {one.name: one.shape for one in a.tensors if one.name not in alone}
    choices: dict[str, list[str]] = {}
    for name in alone:
        if any(f"{name}.".startswith(f"{place}.") for place in choices):
            continue
        parts = name.split(".")
        # The largest module without any paired parameter.
        for depth in range(1, len(parts)):
            place = ".".join(parts[:depth])
            if module_contents(place, paired):
                continue
            wanted = module_contents(place, alone)
            others = [
                o for o in sibling_modules(place, paired) if module_contents(o, paired) == wanted
            ]
            if others:
                choices[place] = others[:MAX_CANDIDATES]
            break
    if not choices:
        return []
    candidates = []
    for n in range(max(map(len, choices.values()))):
        pairs = tuple((place, others[min(n, len(others) - 1)]) for place, others in choices.items())
        candidates.append(Mutation("parameters", "share", (), "", "", pairs))
    return candidates


def module_contents(place: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of a module's parameters, by their names within the module."""
    start = f"{place}."
    return {name[len(start) :]: shape for name, shape in shapes.items() if name.startswith(start)}


def sibling_modules(place: str, shapes: Mapping[str, Shape]) -> list[str]:
    """Return all other modules with parameters: first those with the same parent, then those of the
    same depth, then the rest."""
    depth, parent = place.count("."), place.rpartition(".")[0]
    modules = {name[:i] for name in shapes for i, sign in enumerate(name) if sign == "."}
    return sorted(
        modules - {place},
        key=lambda one: (one.rpartition(".")[0] != parent, one.count(".") != depth, one),
    )


def bias_mutations(b: Trace, pairing: Pairing) -> tuple[list[Mutation], dict[str, NDArray[Any]]]:
    """Return mutations that add biases which only the second side has, to modules whose weights are
    paired, and their initial values: one mutation for all, and one for each if there are several.

    The values are keyed by the names that the first side's biases would have.
    """
    start, values = b.initial_parameters(), dict[str, NDArray[Any]]()
    weights = {
        pair.b.rpartition(".")[0]: pair.a for pair in pairing.pairs if pair.a.endswith(".weight")
    }
    for name in pairing.unpaired_parameters[1]:
        module, _, leaf = name.rpartition(".")
        if leaf == "bias" and module in weights:
            values[weights[module].removesuffix("weight") + "bias"] = start[name]
    places = tuple(name.removesuffix(".bias") for name in values)
    groups = [places] if places else []
    if len(places) > 1:
        groups += [(place,) for place in places]
    return [Mutation("extra", "bias", (), "", "", group) for group in groups], values


def neutral_parameter_mutations(a: Trace, pairing: Pairing) -> list[Mutation]:
    """Return mutations that neutralize parameters which only the first side has, such as biases.

    Each covers all calls of one function that take one at the same input position.
    """
    alone = {f"parameter:{name}" for name in pairing.unpaired_parameters[0]}
    sites: dict[tuple[str, int], list[int]] = {}
    for one in a.operations:
        for position, given in enumerate(one.inputs):
            if given in alone:
                sites.setdefault((one.name, position), []).append(one.number)
    return [
        Mutation("missing", "input", tuple(numbers), name, position, ("neutral",))
        for (name, position), numbers in sites.items()
    ]


def untying_mutations(
    places: Mapping[str, Mapping[str, Shape]], b: Trace, pairing: Pairing
) -> tuple[list[Mutation], dict[str, NDArray[Any]]]:
    """Return mutations that split modules which the first side shares and the second does not.

    Also return the initial values of the new parameters, by the first side's names.

    Args:
        places: alias of a shared module or parameter → the parameters below it, with their shapes.
    """
    alone = [one for one in b.tensors if one.name in pairing.unpaired_parameters[1]]
    start, values, found = b.initial_parameters(), dict[str, NDArray[Any]](), list[str]()
    for place, below in places.items():
        chosen: dict[str, Tensor] = {}
        for name, shape in below.items():
            left = [one for one in alone if one not in chosen.values()]
            one = next((one for one in left if find_change(shape, one.shape) is not None), None)
            if one is None:
                break
            chosen[name] = one
        else:
            alone = [one for one in alone if one not in chosen.values()]
            for name, one in chosen.items():
                way = find_change(below[name], one.shape)
                assert way is not None
                values[name] = apply_change(start[one.name], way, below[name])
            found.append(place)
    groups: Sequence[tuple[str, ...]] = [tuple(found)] if found else []
    if len(found) > 1:
        groups = [*groups, *((place,) for place in found)]
    return [Mutation("parameters", "untie", (), "", "", group) for group in groups], values
