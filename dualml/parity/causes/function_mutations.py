"""Enumerate mutations of what an operation computes: its attributes, numbers and function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.mutation_site import MutationSite
from dualml.parity.causes.settings import is_probability, joint_settings, setting_values
from dualml.parity.causes.tables import (
    ACTIVATIONS,
    COUNTS,
    EXTRAS,
    FAMILIES,
    FORMS,
    IDLE,
    MASKS,
    PADDED,
    PLAIN,
    UNARY,
)

#: Other ways to interpolate: without half-pixel centres, to the nearest pixel, with other cubic
#: weights.
RESAMPLING = ("corners", "rounded", "keys")
#: Form of a function → kind of the mutation, if the kind is not ``function``.
FORM_KINDS = {
    "unbiased": "attribute",
    "tiled": "layout",
    "halves": "layout",
    "over_all": "attribute",
    "over_count": "attribute",
}


def changed_attributes(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that set one attribute of the call to another value, for each attribute but
    those without effect."""
    for argument, old in site.operation.attributes.items():
        if argument in IDLE or argument in COUNTS.get(site.name, ()):
            continue
        for value in setting_values(argument, old, site.operation, site.context):
            kind = classify_setting(site.name, argument, value)
            yield site.mutate(kind, "set", argument, value, old)


def classify_setting(function: str, argument: str, value: Any) -> str:
    """Return the kind of a mutation that sets an argument of a function to a value.

    For a number that the function computes with (``other``, ``alpha``, ``exponent``) it is
    ``missing`` if the value has no effect, such as adding 0, else ``constant``, as for a fill
    value; ``mask`` for settings of functions that mask; ``attribute`` for all others.
    """
    if argument in ("other", "alpha", "argument 1", "exponent"):
        none = value == (0 if function in ("add", "sub") else 1)
        return "missing" if none else "constant"
    if argument == "fill_value":
        return "constant"
    mask = function in MASKS and argument in ("value", "diagonal", "is_causal")
    return "mask" if mask else "attribute"


def changed_numbers(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that replace a float attribute of the call, wherever the model uses this
    number, by a number of the other side or by 1 minus it. Attributes of 0 or 1 are left out."""
    for argument, old in site.operation.attributes.items():
        if isinstance(old, float) and argument not in IDLE and old not in (0.0, 1.0):
            values = [
                v for v in site.context.numbers if isinstance(v, float) and v not in (old, 1 - old)
            ]
            yield from (
                site.mutate("constant", "everywhere", old, v, old)
                for v in dict.fromkeys([*values, *(1 - v for v in values)])
                if not is_probability(argument, site.operation) or 0 <= v <= 1
            )


def dropped_calls(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that leave out the call: each input that has the output's shape takes its
    place."""
    for i, shape in enumerate(site.shapes):
        if shape == site.output_shape:
            yield site.mutate("missing", "drop", i)


def other_functions(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations to related functions, to other forms of the function, and to other epsilons
    of it."""
    word = "mask" if site.name in MASKS else "function"
    yield from (
        site.mutate(word, "function", "", other, site.name)
        for family in FAMILIES
        if site.name in family
        for other in family
        if other != site.name
    )
    yield from (
        site.mutate(FORM_KINDS.get(form, "function"), "form", form, True, False)
        for form in FORMS.get(site.name, ())
    )
    yield from (
        site.mutate("constant", "form", form, eps, False)
        for form in FORMS.get(site.name, ())
        if form.startswith("eps")
        for eps in site.context.numbers
        if 0 < eps < 1
    )
    if site.name == "cross_entropy" and site.operation.attributes.get("label_smoothing"):
        yield site.mutate("function", "smooth_others")
    if site.name == "embedding" and not site.operation.inputs[0].startswith("input:"):
        yield site.mutate("mask", "plain_positions")
    if site.name == "interpolate":
        yield from (site.mutate("attribute", "resample", "", way) for way in RESAMPLING)
    if site.name in ("gru", "gru_cell"):
        yield site.mutate("function", "reset_before")
    if site.name in ("cross_entropy", "nll_loss"):
        yield from (site.mutate("function", "mean_of_parts", "", n) for n in part_counts(site))
    if site.name in ("sqrt", "rsqrt"):
        yield from (site.mutate("order", "form", "eps_behind", c, 0.0) for c in site.context.added)


def part_counts(site: MutationSite) -> list[int]:
    """Return the numbers of equal parts that a loss's batch may be divided into, in order: two,
    four, and numbers of samples, as far as they divide the rows of the labels evenly.

    Samples are the rows themselves if the labels have several axes, and the first axes of values
    whose first two axes were made one to give these rows.
    """
    rows = site.shapes[1][0] if len(site.shapes) > 1 and site.shapes[1] else 0
    shapes = site.context.shapes.values()
    samples = {shape[0] for shape in shapes if len(shape) > 1 and shape[0] * shape[1] == rows}
    if len(site.shapes[1:2]) and len(site.shapes[1]) > 1:
        samples.add(rows)
    return sorted(n for n in {*samples, 2, 4} if 1 < n <= rows and rows % n == 0)


def changed_settings(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations to other ways of padding, a convolution's to values of the input, and of
    several settings at once."""
    padding = site.operation.attributes.get("padding")
    if site.name in PADDED and isinstance(padding, int | list):
        ways = ["same", "same_before", "behind", "before"]
        if site.name in ("conv1d", "conv2d") and padding not in (0, [0], [0, 0]):
            ways += ["reflect", "replicate", "circular"]
        yield from (site.mutate("attribute", "pad", "padding", way, padding) for way in ways)
    yield from (
        site.mutate(
            "attribute", "settings", " and ".join(ours), tuple(theirs.items()), tuple(ours.values())
        )
        for ours, theirs in joint_settings(site.name, site.operation.attributes)
    )


def other_unary_functions(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that put another function in place of the call's: every activation function
    if the call is one, or another elementwise function such as ``exp`` if it is such a one; nothing
    for other calls."""
    if site.name in UNARY:
        yield from (site.mutate("function", "instead", "", f, site.name) for f in ACTIVATIONS[:-1])
    elif (site.name,) in PLAIN:
        yield from (
            site.mutate("function", "instead", "", f, site.name) for f in PLAIN if f != (site.name,)
        )


def added_calls(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that add a call after this one: a Dropout, another function, or this call
    again if an input has its output's shape."""
    yield from (site.mutate("extra", "dropout", "", rate) for rate in site.context.rates)
    yield from (site.mutate("extra", "output", "", f) for f in EXTRAS)
    if any(shape == site.output_shape for shape in site.shapes):
        yield site.mutate("extra", "twice")
