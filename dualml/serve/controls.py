"""What a reader chooses with: a form whose answers stand in the address, so that it works without
scripts and can be kept as a bookmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dualml.report.page.html import tag
from dualml.words import Words


def box(name: str, value: str, label: str, *, form: str = "", checked: bool = False) -> Markup:
    """A box to tick."""
    start = tag("input", type="checkbox", name=name, value=value, aria_label=label, form=form,
                checked="checked" if checked else "")  # fmt: skip
    return Markup(start.removesuffix("</input>"))


def select(name: str, label: str, options: Mapping[str, str], chosen: str) -> Markup:
    """A list of which one is chosen: value → text."""
    shown = [tag("option", text, value=value, selected="selected" if value == chosen else "")
             for value, text in options.items()]  # fmt: skip
    return tag("label", tag("span", label), tag("select", *shown, name=name))


def form(
    parts: Sequence[Markup], kept: Mapping[str, Sequence[str]], words: Words, anchor: str
) -> Markup:
    """Sent by the script as soon as something is chosen, by its button without.

    Args:
        kept: what else stands in the address.
        anchor: the part of the page where it is.
    """
    hidden = [Markup('<input type="hidden" name="{}" value="{}">').format(name, value)
              for name, values in kept.items() for value in values]  # fmt: skip
    button = tag("button", words("serve.show"), type="submit")
    return tag("form", *hidden, *parts, button, method="get", action=f"/run#{anchor}",
               class_="choice", data_auto="yes")  # fmt: skip
