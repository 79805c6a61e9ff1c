"""Messages of a model comparison in two languages, and those about its first divergence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

from dualml.common.words import section_messages
from dualml.experiment.comparison import FirstDivergence

Language = Literal["en", "zh"]


def format_message(lang: Language, key: str, **values: Any) -> str:
    """Return a message with its values filled in.

    Raises:
        KeyError: an unknown key, which is an internal error.
    """
    return section_messages(lang, "models")[key].format(**values)


def find_message(lang: Language, *keys: str, **values: Any) -> str:
    """Return the first of these messages that exists, with its values filled in.

    Raises:
        KeyError: none of them exists, which is an internal error.
    """
    known = section_messages(lang, "models")
    key = next((key for key in keys if key in known), keys[-1])
    return format_message(lang, key, **values)


def describe_divergence_place(lang: Language, first: FirstDivergence, sides: Sequence[str]) -> str:
    """Return a sentence about where two models diverge: step, phase, layer and tensor."""
    layer = first.layer or first.tensor
    other = "" if first.other in ("", first.tensor) else f" ({sides[1]}: {first.other})"
    return format_message(
        lang,
        "first.place",
        step=first.step,
        phase=format_message(lang, f"phase.{first.phase}"),
        layer=f"{layer} ({first.type})" if first.type else layer,
        tensor=f"{first.tensor}{other}",
    )


def describe_divergence_numbers(
    lang: Language, first: FirstDivergence, sides: Sequence[str], margin: float, value_key: str
) -> Iterator[str]:
    """Yield sentences on how far two models diverge, or what kind of difference it is, and on where
    the margin is exceeded if that is later.

    Args:
        value_key: message key of the sentence about distance and rounding.
    """
    say, (a, b) = partial(format_message, lang), sides
    if first.shapes and first.kind in ("shape", "outputs"):
        left, right = (str(tuple(shape)) for shape in first.shapes)
        yield say("first.shape", a=a, b=b, left=left, right=right)
    elif first.kind == "value":
        ratio = first.distance / first.envelope if first.envelope else float("inf")
        yield say(
            value_key,
            distance=f"{first.distance:.1e}",
            ratio=f"{ratio:.3g}",
            envelope=f"{first.envelope:.1e}",
            margin=f"{margin:g}",
        )
        if first.outside:
            phase = say(f"phase.{first.outside['phase']}")
            yield say("first.outside", **{**first.outside, "phase": phase})
    elif first.kind != "outputs":
        yield say(f"first.{first.kind}", side=first.side)


def describe_elements(
    lang: Language,
    first: FirstDivergence,
    sides: Sequence[str],
    key: str = "first.elements",
    most: int | None = None,
) -> str:
    """Return a sentence with the elements that differ most, at most ``most`` of them (None: all); a
    scalar is given without an index.

    Args:
        key: message key of the sentence.
    """
    say, (a, b) = partial(format_message, lang), sides
    listed = (
        say("first.element", index=index, a=a, b=b, left=f"{e[a]:.7g}", right=f"{e[b]:.7g}")
        for e in first.elements[:most]
        for index in [f"{e['index']} " if e["index"] else ""]
    )
    return say(key, elements=say("semicolon").join(listed))
