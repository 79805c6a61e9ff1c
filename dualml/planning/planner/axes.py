"""Layouts as text: ``dp=8,pp=12,tp=4,micro=2``, as `--layout` and `--pin` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.strict_model import clip_text
from dualml.planning.planner.layouts import DEFAULT_AXES, RECOMPUTATIONS, SCHEDULES

#: Axes with a number from 1; ``zero`` and the numbers of layers begin at 0.
COUNTS = ("dp", "pp", "tp", "cp", "ep", "etp", "micro", "chunks", "replicate")
SWITCHES = ("sp", "reshard")
WORDS: Mapping[str, tuple[str, ...]] = {"recompute": RECOMPUTATIONS, "schedule": SCHEDULES}
LAYERS = ("first_layers", "last_layers")
AXES = (*COUNTS[:6], "sp", "zero", *COUNTS[6:], "reshard", *WORDS, *LAYERS)
#: Other names of axes, as engines and papers have them.
ALIASES: Mapping[str, str] = {
    "b": "micro",
    "v": "chunks",
    "vpp": "chunks",
    "interleave": "chunks",
    "hsdp": "replicate",
}
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
MAX_COUNT = 10**9


def parse_axes(text: str, option: str) -> dict[str, Any]:
    """Parse axes of a layout, ``dp=8,tp=4,recompute=full``, into axis → value.

    Args:
        text: pairs of an axis of `AXES`, or of `ALIASES`, and its value, separated by commas.
        option: name of the option that errors mention.

    Raises:
        UserError: an unknown or repeated axis, or a value out of range.

    Example:
        >>> parse_axes("tp=4,zero=1,sp=1", "--pin")
        {'tp': 4, 'zero': 1, 'sp': True}
    """
    values: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        axis = ALIASES.get(name, name)
        if not equals:
            raise UserError(
                f"{option}: {clip_text(repr(pair))} has no value; write AXIS=VALUE, as in tp=4"
            )
        if axis not in AXES:
            raise UserError(
                f"{option}: unknown axis {clip_text(repr(name))}{did_you_mean(name, AXES)}; axes "
                f"are {', '.join(AXES)}"
            )
        if axis in values:
            raise UserError(f"{option} names {axis} twice; give it one value")
        values[axis] = _parse_value(axis, value, option)
    if not values:
        raise UserError(f"{option} names no axis; write AXIS=VALUE, as in tp=4,micro=2")
    return values


def _parse_value(axis: str, text: str, option: str) -> int | bool | str:
    """Return the value of one axis; raise `UserError` for one that it cannot have."""
    shown = clip_text(repr(text))
    if axis in WORDS:
        if text not in WORDS[axis]:
            raise UserError(f"{option}: {axis} is {', '.join(WORDS[axis])}; received {shown}")
        return text
    if axis in SWITCHES:
        if text.lower() not in TRUE + FALSE:
            raise UserError(f"{option}: {axis} is 0 or 1; received {shown}")
        return text.lower() in TRUE
    low, high = (0, 3) if axis == "zero" else (0 if axis in LAYERS else 1, MAX_COUNT)
    if not (text.isascii() and text.isdigit() and low <= int(text[:19]) <= high):
        raise UserError(f"{option}: {axis} is a number from {low} to {high:,}; received {shown}")
    return int(text)


def complete_axes(given: Mapping[str, Any], devices: int | None) -> dict[str, Any]:
    """Return all axes of a layout of which some are given: dp is what the other axes leave of the
    devices, every other axis has its default.

    Args:
        given: axis → value.
        devices: number of devices; None: the product of the axes.

    Raises:
        UserError: the devices are not a multiple of the axes, or not their product.
    """
    axes: dict[str, Any] = {**DEFAULT_AXES, **given}
    others = axes["pp"] * axes["tp"] * axes["cp"]
    product = f"pp {axes['pp']} · tp {axes['tp']} · cp {axes['cp']}"
    if devices is None:
        return axes
    if "dp" not in given:
        if devices % others:
            raise UserError(
                f"--layout: {product} = {others:,} does not divide {devices:,} devices; change an "
                "axis, or --devices"
            )
        axes["dp"] = devices // others
    if axes["dp"] * others != devices:
        raise UserError(
            f"--layout: dp {axes['dp']} · {product} = {axes['dp'] * others:,}, but --devices is "
            f"{devices:,}; leave out --devices, or dp"
        )
    return axes


def parse_choices(text: str | None, known: Any, name: str) -> tuple[str, ...]:
    """Return the words of the comma-separated ``text`` in the order of ``known``, each once; None
    means all of ``known``. ``name`` is the option's name in errors.

    Raises:
        UserError: a word that is not in ``known``.
    """
    if text is None:
        return tuple(known)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not set(words) <= set(known):
        raise UserError(f"{name} {text!r}: write some of {','.join(known)}")
    return tuple(word for word in known if word in words)
