"""A `Document` as one HTML file that loads nothing."""

from __future__ import annotations

import re

from dualml.report.code import highlight
from dualml.report.document import Document
from dualml.report.mathml import mathml
from dualml.report.style import WIDTH

CODE = re.compile(r"`([^`]+)`")


def html(document: Document) -> str:
    """The page; every text from the run folder is escaped by the template engine."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=PackageLoader("dualml.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # What a sentence quotes, a command or a name, stands in backquotes.
    environment.filters["quoted"] = lambda text: Markup(
        CODE.sub(r"<code>\1</code>", str(escape(text)))
    )
    css = environment.loader.get_source(environment, "style.css")[0]  # type: ignore[union-attr]
    return environment.get_template("report.html.j2").render(
        d=document,
        w=document.words,
        css=Markup(css),
        full_width=WIDTH,
        # The three kinds of markup below are made by this package from escaped text.
        math=lambda latex: Markup(mathml(latex)),
        highlight=lambda text: Markup(highlight(text)),
        svg=lambda text: Markup(text),
    )
