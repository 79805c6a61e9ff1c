"""Form controls whose state is kept in the URL: they work without scripts and can be bookmarked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dualml.common.words import Messages
from dualml.report.page.html import tag


def checkbox(name: str, value: str, label: str, *, form: str = "", checked: bool = False) -> Markup:
    """Make a checkbox of a form.

    Args:
        name, value: of the URL's parameter that it sets if it is checked.
        label: its text for screen readers; nothing is shown.
        form: id of its form, where it stands outside of the form.
        checked: whether it is checked at first.
    """
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
    """Make a drop-down list with its label.

    Args:
        name: of the URL's parameter that it sets.
        label: text in front of it.
        options: value → text.
        chosen: the value that is selected at first.
    """
    shown = [
        tag("option", text, value=value, selected="selected" if value == chosen else "")
        for value, text in options.items()
    ]
    return tag("label", tag("span", label), tag("select", *shown, name=name))


def form(
    parts: Sequence[Markup], kept: Mapping[str, Sequence[str]], words: Messages, anchor: str
) -> Markup:
    """Make a form of the page ``/run`` that the script submits on every change; without scripts its
    button does.

    Args:
        parts: the controls.
        kept: other parameters of the URL and their values, which stay.
        words: messages in the user's language.
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
