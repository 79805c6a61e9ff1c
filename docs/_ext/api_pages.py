"""The Python API reference: the names in ``docs/public.toml`` with their docstrings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from _ext.pages import DOCS, Page
from _ext.words import code, table, words


def public() -> list[dict[str, Any]]:
    """Return the modules of ``docs/public.toml``: ``name``, ``title`` in both languages,
    ``names``."""
    return list(tomllib.loads((DOCS / "public.toml").read_text("utf-8"))["module"])


def pages() -> Iterator[Page]:
    """Yield a page for each public module, and an index of them."""
    yield Page("reference/api/index", make=index)
    for module in public():
        yield Page(f"reference/api/{module['name']}", make=page_maker(module), hidden=True)


def index(lang: str) -> str:
    texts = words(lang)["api"]
    rows = [
        [
            f"[{code(module['name'])}]({module['name']}.md)",
            module["title"][lang],
            ", ".join(code(name) for name in module["names"]),
        ]
        for module in public()
    ]
    tree = "\n".join(["```{toctree}", ":hidden:", *(module["name"] for module in public()), "```"])
    head = [texts["module"], texts["about"], texts["names"]]
    return f"# {texts['title']}\n\n{texts['intro']}\n\n{table(head, rows)}\n\n{tree}\n"


def page_maker(module: dict[str, Any]) -> Callable[[str], str]:
    """Return a function that makes the page of a module in a language."""
    return lambda lang: page(module, lang)


def page(module: dict[str, Any], lang: str) -> str:
    directive = [
        "```{eval-rst}",
        f".. automodule:: {module['name']}",
        f"   :members: {', '.join(module['names'])}",
        "   :member-order: bysource",
        "```",
    ]
    return f"# {code(module['name'])}: {module['title'][lang]}\n\n" + "\n".join(directive) + "\n"
