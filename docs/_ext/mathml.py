"""Formulas as MathML, which browsers render without a network or a script."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def drawn(latex: str, display: str) -> str:
    """Return one ``<math>`` element for a formula.

    Raises:
        SphinxError: the converter does not know a command, which it would print as text.
    """
    element = convert(latex, display=display)
    if "\\" in element:
        raise SphinxError(f"no MathML for {latex}")
    return element


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(drawn(node.astext(), "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{drawn(node.astext(), "block")}</div>')
    raise nodes.SkipNode
