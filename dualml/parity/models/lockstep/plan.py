"""Plan which modules of two models are compared as blocks, and which are partners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dualml.common.errors import UserError, did_you_mean
from dualml.parity.models.layers import canonical_type, parent_name
from dualml.parity.models.partners import Pairing, Tensor

#: Smallest number of modules of one type that make a list.
MIN_LISTED = 2
#: Number of names that an error lists.
SHOWN_NAMES = 4


@dataclass(frozen=True)
class ModelOutline:
    """The modules and tensors of a model, by name.

    Attributes:
        modules: name → type of every submodule, in the framework's order.
        tensors: its parameters and buffers.
        shared: names of parameters that several modules have; these lie in no block.
    """

    modules: Mapping[str, str]
    tensors: Sequence[Tensor]
    shared: Sequence[str] = ()

    def has_shared(self, name: str) -> bool:
        """Return whether a parameter in this module also belongs to another module."""
        return any(is_inside(one, name) for one in self.shared)

    def children(self, name: str) -> list[str]:
        """Return the names of the direct submodules of a module, ``""`` for the model itself."""
        return [one for one in self.modules if parent_name(one) == name]

    def has_weights(self, name: str) -> bool:
        """Return whether a trained parameter lies in a module or its submodules."""
        return any(one.trained and is_inside(one.name, name) for one in self.tensors)

    def is_list(self, name: str) -> bool:
        """Return whether the submodules of a module form a list: it is of a list type and has
        parameters, or all its submodules are named by numbers, and at least two with parameters
        have one type."""
        below = self.children(name)
        if below and canonical_type(self.modules.get(name, "")) == "modulelist":
            return self.has_weights(name)
        if not below or not all(one.rpartition(".")[2].isdigit() for one in below):
            return False
        types = [canonical_type(self.modules[one]) for one in below if self.has_weights(one)]
        return any(types.count(kind) >= MIN_LISTED for kind in types)


def is_inside(name: str, module: str) -> bool:
    """Return whether a dotted name lies inside a module, without the module itself; everything lies
    in ``""``."""
    return not module or name.startswith(f"{module}.")


def find_blocks(outline: ModelOutline) -> list[str]:
    """Return the modules that are compared one after the other: the members of the outermost lists
    of modules of one type, and the modules with parameters beside these lists; without those that
    share a parameter with another module.

    A model without such a list is cut into its direct submodules.

    Example:
        >>> modules = {"emb": "Embedding", "h": "ModuleList", "h.0": "Block", "h.1": "Block"}
        >>> names = ("emb.weight", "h.0.w", "h.1.w")
        >>> find_blocks(ModelOutline(modules, [Tensor(name, (2,)) for name in names]))
        ['emb', 'h.0', 'h.1']
    """
    lists = {name for name in ["", *outline.modules] if outline.is_list(name)}

    def split(name: str) -> list[str]:
        """Return the blocks that a module with parameters is divided into; the module itself if it
        contains no list."""
        around = not name or any(is_inside(one, name) for one in lists)
        if not (around or name in lists):
            return [name]
        return [
            block
            for child in outline.children(name)
            if outline.has_weights(child)
            for block in ([child] if name in lists else split(child))
        ]

    return [block for block in split("") if not outline.has_shared(block)]


def name_blocks(named: Sequence[str], outline: ModelOutline) -> list[str]:
    """Return the blocks that a user named in the first model; a list of modules stands for its
    members with parameters.

    Raises:
        UserError: there is no such module, a block has no trained parameters or shares one with
            another module, or a block lies in another.
    """
    blocks: list[str] = []
    for name in named:
        if name not in outline.modules:
            raise UserError(
                f"--blocks: the first model has no module {name!r}"
                f"{did_you_mean(name, outline.modules)}"
            )
        members = [name]
        if all(one.rpartition(".")[2].isdigit() for one in outline.children(name)):
            members = [x for x in outline.children(name) if outline.has_weights(x)] or [name]
        blocks += [one for one in members if one not in blocks]
    for one in blocks:
        if not outline.has_weights(one):
            raise UserError(f"--blocks: {one} has no trained parameters")
        if outline.has_shared(one):
            raise UserError(
                f"--blocks: a parameter of {one} belongs to another module, too, and has to stay "
                "in memory; leave it out"
            )
        if outer := next((other for other in blocks if is_inside(one, other)), None):
            raise UserError(f"--blocks: {one} lies in {outer}; name one of them")
    return blocks


def pair_blocks(
    blocks: Sequence[str],
    outlines: tuple[ModelOutline, ModelOutline],
    pairing: Pairing,
    modules: Mapping[str, str],
    sides: tuple[str, str],
    *,
    strict: bool,
) -> dict[str, str]:
    """Return block of the first model → module of the second model that has exactly its parameters.

    Args:
        pairing: the parameters, paired; a piece of a fused tensor is named ``NAME[0]``.
        outlines: modules and tensors of the first and the second model.
        modules: module of the first model → partner in the second, tried first.
        sides: names of the two sides, for errors.
        strict: whether a block without a partner is an error; else it is left out, and its
            parameters stay in memory.

    Raises:
        UserError: no block has a partner, or, if ``strict``, one has none.
    """
    found: dict[str, str] = {}
    left = []
    for block in blocks:
        pairs = [pair for pair in pairing.pairs if is_inside(pair.a, block)]
        candidates = [modules[block]] if block in modules else []
        kind = canonical_type(outlines[0].modules[block])
        around = enclosing_modules([pair.b for pair in pairs], outlines[1])
        candidates += sorted(
            around, key=lambda name: canonical_type(outlines[1].modules[name]) != kind
        )
        fits = (
            name
            for name in candidates
            if pairs
            and not outlines[1].has_shared(name)
            and all(is_inside(pair.b, name) for pair in pairs)
            and all(is_inside(p.a, block) for p in pairing.pairs if is_inside(p.b, name))
            and not any(
                is_inside(name, y) or is_inside(y, name) or y == name for y in found.values()
            )
        )
        if partner := next(fits, None):
            found[block] = partner
        else:
            left.append(block)
    if left and (strict or not found):
        shown = ", ".join(left[:SHOWN_NAMES]) + (", …" if len(left) > SHOWN_NAMES else "")
        raise UserError(
            f"{len(left)} of {len(blocks)} blocks of {sides[0]} have no partner in {sides[1]}, "
            f"no single module with the same parameters: {shown}; name the parameters with map, "
            "or other blocks with --blocks"
        )
    return found


def enclosing_modules(names: Sequence[str], outline: ModelOutline) -> list[str]:
    """Return the modules in which all tensors of these names lie, the outermost first; empty
    without names."""
    first, found = names[0] if names else "", list[str]()
    while first := parent_name(first):
        if first in outline.modules and all(is_inside(name, first) for name in names):
            found.insert(0, first)
    return found
