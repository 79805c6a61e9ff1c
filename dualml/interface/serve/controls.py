"""Form controls whose state is kept in the URL: they work without scripts and can be bookmarked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dualml.common.words import Messages
from dualml.report.page.html import tag


def checkbox(name: str, value: str, label: str, *, form: str = "", checked: bool = False) -> Markup:
    """Make a checkbox of a form."""
    start = tag(
        "input",
        type="checkbox",
        name=name,
        value=value,
        aria_label=label,
        form=form,
        checked="checked" if checked else "",
    )
    return Markup(start.removesuffix("</input>"))


def select_box(name: str, label: str, options: Mapping[str, str], chosen: str) -> Markup:
    """Make a drop-down list from value → text, with one value selected."""
    shown = [
        tag("option", text, value=value, selected="selected" if value == chosen else "")
        for value, text in options.items()
    ]
    return tag("label", tag("span", label), tag("select", *shown, name=name))


def form(
    parts: Sequence[Markup], kept: Mapping[str, Sequence[str]], words: Messages, anchor: str
) -> Markup:
    """Make a form that the script submits on every change; without scripts its button does.

    Args:
        parts: the controls.
        kept: other parameters of the URL, which stay.
        anchor: the section of the page to scroll to.
    """
    hidden = [
        Markup('<input type="hidden" name="{}" value="{}">').format(name, value)
        for name, values in kept.items()
        for value in values
    ]
    button = tag("button", words("serve.show"), type="submit")
    return tag(
        "form",
        *hidden,
        *parts,
        button,
        method="get",
        action=f"/run#{anchor}",
        class_="choice",
        data_auto="yes",
    )
