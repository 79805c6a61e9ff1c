"""Prepare this project's docstrings for autodoc: plain text, code in backticks, formulas."""

from __future__ import annotations

import importlib
import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import _MockObject, mock

from _ext.api_pages import public
from dualml.common.former_members import FORMER_MEMBERS

#: Code, or a character that reStructuredText would interpret.
MEANT = re.compile(r"(`{1,2})(?P<code>[^`]+)\1(?P<joined>\w?)|(?P<mark>[*|]|(?<=\w)_(?!\w))")

SECTION = re.compile(r"^(?:Args|Attributes|Returns|Yields|Raises|Example|Note)s?:$", re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", imported)
    # Before napoleon, which makes reStructuredText of `Args:` and the like.
    app.connect("autodoc-process-docstring", plain, priority=400)
    app.connect("autodoc-process-docstring", formulas, priority=600)
    app.connect("autodoc-skip-member", skip_former)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def empty_function() -> None: ...


def imported(app: Sphinx) -> None:
    """Import the public modules, including names that they resolve lazily."""
    for name in ("__code__", "__globals__", "__defaults__", "__closure__", "__kwdefaults__"):
        setattr(_MockObject, name, getattr(empty_function, name))  # functions are taken apart
    for name in ("__or__", "__ror__"):  # types stand in unions: `float | Tensor`
        setattr(_MockObject, name, lambda self, other: self)
    with mock(app.config.autodoc_mock_imports):
        for listed in public():
            module = importlib.import_module(listed["name"])
            for name in listed["names"]:
                setattr(module, name, getattr(module, name))


def skip_former(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Leave out members under the names that they had in version 0.1."""
    present = getattr(getattr(thing, "fget", thing), "__name__", name)
    return any(names.get(name) == present for names in FORMER_MEMBERS.values()) or None


def plain(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Escape what reStructuredText would interpret: products, absolute values, names ending in
    ``_``. Indented text before the first section becomes a code block."""
    parts: list[str] = []
    in_section = in_code = False
    for text in "\n".join(lines).split("\n\n"):
        indented = text.startswith("    ") and not in_section
        if indented and not in_code:
            parts.append(".. code-block:: python")
        in_code = indented
        in_section = in_section or bool(SECTION.search(text))
        parts.append(text if in_code or ">>>" in text else MEANT.sub(escaped, text))
    lines[:] = "\n\n".join(parts).split("\n")


def escaped(match: re.Match[str]) -> str:
    if match["mark"]:
        return f"\\{match['mark']}"
    return f"``{match['code']}``" + (f"\\ {match['joined']}" if match["joined"] else "")


def formulas(
    app: Sphinx, what: str, name: str, thing: Any, options: object, lines: list[str]
) -> None:
    """Append the formulas of a rule or a strategy to its docstring."""
    from dualml.algorithms.optim import OptimizerSpec
    from dualml.parallel.aggregation import Strategy

    if what != "class" or not isinstance(thing, type):
        return
    latex: list[str] = []
    if (
        issubclass(thing, OptimizerSpec)
        and thing is not OptimizerSpec
        and thing.__module__.startswith("dualml.")
    ):
        latex = thing(**next(iter(thing.variants.values()))).formulas()
    elif issubclass(thing, Strategy):
        latex = list(thing.formulas)
    for formula in latex:
        lines += ["", ".. math::", "", f"   {formula}", ""]
