"""Activation recomputation: which activations are recomputed in the backward pass instead of saved.

An arm's ``recompute`` is ``none``; ``selective``, the inside of every attention, whose scores grow
with the square of the length and take few products to compute (Korthikanti et al. 2022, "Reducing
Activation Recomputation in Large Transformer Models", sec. 5); ``full``, every block that ends in a
residual connection (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", sec. 3); or
the names of layers. Of consecutive recomputed layers only the input of the first one is saved.

Recomputation repeats the original computation: the same kernels on the same values, with the
planned dropout masks (`dualml.algorithms.model.dropout`). The numbers of a training do not change.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.algorithms.model.layers import Attention, Branch, Dropout, Merge, Swap
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, did_you_mean

SETTINGS = ("none", "selective", "full")
#: Names of layers, in the order of the model; each tuple is recomputed as a whole.
Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class LayerSpan:
    """Consecutive layers of a part of a model that are either all recomputed or all not.

    Attributes:
        layers: slice of the part's layers.
        recomputed: whether they are recomputed.
        input_count: number of stack values that go into them, from the top.
        masks: slice of the masks of the part's Dropout layers that belong to them.
        needs_padding_mask: whether one of them needs the mask of positions that hold a token.
    """

    layers: slice
    recomputed: bool
    input_count: int
    masks: slice
    needs_padding_mask: bool


def validate_recompute(setting: str | Sequence[str]) -> None:
    """Check the ``recompute`` key of an arm without a model; raise `UserError` for an unknown word,
    an empty list, or a layer named twice."""
    if isinstance(setting, str):
        if setting not in SETTINGS:
            raise UserError(
                f"recompute is {', '.join(SETTINGS)} or a list of names of layers; "
                f"received {setting!r}{did_you_mean(setting, SETTINGS)}"
            )
        return
    if not setting:
        raise UserError("recompute = [] names no layer; leave it out")
    for name in setting:
        if list(setting).count(name) > 1:
            raise UserError(f"recompute names {name!r} twice; name each layer once")


def recompute_groups(spec: ModelSpec, setting: str | Sequence[str]) -> Groups:
    """Return the groups of layers of a model that are recomputed, by their names.

    Args:
        setting: ``none``: no group; ``selective``: each attention layer; ``full``: each block that
            ends in an outermost residual connection, with all layers since the previous one; or
            names of layers, of which consecutive ones form a group.

    Raises:
        UserError: the model has no such layers, or none of a given name; an unknown word, an empty
            list, or a name given twice.

    Example:
        >>> from dualml.algorithms.model import model
        >>> recompute_groups(model("vit"), "selective")
        (('attention',),)
        >>> recompute_groups(model("mlp"), ["tanh2", "fc2", "flatten"])
        (('flatten',), ('fc2', 'tanh2'))
    """
    validate_recompute(setting)
    names = [name for name, _ in spec.layers]
    if setting == "none":
        return ()
    if setting == "selective":
        kinds = Attention | GroupedAttention
        inner = tuple((name,) for name, layer in spec.layers if isinstance(layer, kinds))
        if not inner:
            raise UserError(
                f"recompute = selective computes attention again, and {spec.name} has none; "
                f"{_suggest_layers(spec)}"
            )
        return inner
    if setting == "full":
        full = tuple(
            block
            for block in residual_blocks(spec)
            if isinstance(dict(spec.layers)[block[-1]], Merge)
        )
        if not full:
            raise UserError(
                "recompute = full keeps what goes into blocks that end in a residual connection, "
                f"and {spec.name} has none: all of it would be there at once again; "
                f"{_suggest_layers(spec)}"
            )
        return full
    for name in setting:
        if name not in names:
            raise UserError(
                f"recompute: {spec.name} has no layer {name!r}{did_you_mean(name, names)}"
            )
    runs = itertools.groupby(names, key=lambda name: name in setting)
    return tuple(tuple(run) for chosen, run in runs if chosen)


def _suggest_layers(spec: ModelSpec) -> str:
    """Return the end of an error message: an example of ``recompute`` with the model's last layer,
    and the names of its first four layers."""
    names = [name for name, _ in spec.layers]
    shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    return f'name layers of it, as in recompute = ["{names[-1]}"]: {shown}'


def residual_blocks(spec: ModelSpec) -> Groups:
    """Return the names of all layers of a model in parts, split after every outermost residual
    connection; layers after the last connection form a part of their own."""
    return tuple(tuple(name for name, _ in spec.layers[some]) for some in spec.residual_blocks())


def layer_spans(layers: Sequence[tuple[str, Layer]], groups: Groups) -> tuple[LayerSpan, ...]:
    """Split consecutive layers of a model, or a rank's slices of them, into spans that cover all of
    them; empty if none of them is recomputed. ``groups`` are those of the whole model.

    A group that extends over several parts of a split model is recomputed part by part, so that no
    message between ranks is sent twice.
    """
    group = {name: number for number, names in enumerate(groups) for name in names}
    runs = itertools.groupby(range(len(layers)), key=lambda i: group.get(layers[i][0]))
    found, masks = list[LayerSpan](), 0
    for number, run in runs:
        places = list(run)
        some = slice(places[0], places[-1] + 1)
        count = sum(isinstance(layer, Dropout) for _, layer in layers[some])
        own = slice(masks, masks + count)
        masks += count
        here = any(layer.needs_padding_mask for _, layer in layers[some])
        found.append(
            LayerSpan(some, number is not None, count_stack_inputs(layers[some]), own, here)
        )
    return tuple(found) if any(some.recomputed for some in found) else ()


def count_stack_inputs(layers: Sequence[tuple[str, Layer]]) -> int:
    """Return how many stack values go into consecutive layers, counted from the top.

    Example:
        >>> count_stack_inputs([("norm", Layer()), ("merge", Merge())])
        2
    """
    needed = there = 1
    for _, layer in layers:
        if isinstance(layer, Branch):
            there += 1
        elif isinstance(layer, Swap) and there == 1:
            needed, there = needed + 1, 2
        elif isinstance(layer, Merge):
            there -= 1
            if not there:  # what it adds was kept before the first of them
                needed, there = needed + 1, 1
    return needed
