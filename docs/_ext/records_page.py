"""The reference of the files in a run folder, from the records that write and read them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import dualml.experiment.store
from _ext.experiment_page import kind
from _ext.pages import Page
from _ext.words import code, table, words
from dualml.experiment.store.jsonfile import JsonFile


def pages() -> Iterator[Page]:
    yield Page("reference/records", make=page)


@cache
def files() -> dict[str, Mapping[str, Any]]:
    """Return name → schema of every JSON file in the store; the first schema of a name counts."""
    found: dict[str, Mapping[str, Any]] = {}
    for module in pkgutil.iter_modules(dualml.experiment.store.__path__):
        members = vars(importlib.import_module(f"dualml.experiment.store.{module.name}"))
        for file in members.values():
            if isinstance(file, JsonFile) and not file.record.__name__.endswith("Head"):
                found.setdefault(file.name, file.record.model_json_schema())
    return found


def page(lang: str) -> str:
    texts = words(lang)["records"]
    own = words(lang)["experiment"]
    head = [texts["key"], texts["type"]]
    parts = [f"# {texts['title']}", texts["intro"]]
    for name, schema in sorted(files().items()):
        parts += [f"## {code(name)}", keys(schema, head, own)]
        for record, inner in sorted(schema.get("$defs", {}).items()):
            if inner.get("properties"):
                parts += [f"**{code(record)}**", keys(inner, head, own)]
    return "\n\n".join(parts) + "\n"


def keys(schema: Mapping[str, Any], head: list[str], own: Mapping[str, Any]) -> str:
    """Return the table of a schema's keys."""
    fields = schema["properties"].items()
    return table(head, ([code(key), type_cell(field, own)] for key, field in fields))


def type_cell(field: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return a field's type; for a nested record, its name."""
    inner = field.get("items") or field.get("additionalProperties") or {}
    for ref in (field.get("$ref"), isinstance(inner, dict) and inner.get("$ref")):
        if ref:
            name = code(ref.rpartition("/")[2])
            return own["list_of"].format(kind=name) if "items" in field else name
    return kind(field, own) if {"type", "anyOf", "enum", "const"} & field.keys() else "–"
