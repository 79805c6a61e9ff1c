"""The reference of experiment files, made from the schema that reads them."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _ext.pages import ROOT, Page, SiteError
from _ext.words import code, table, words

if TYPE_CHECKING:
    from dualml.common.tagged_union import TaggedUnion

#: Model of the schema → where its table stands in a file; ``*`` is the name of an arm.
PLACES = {
    "Experiment": (),
    "Data": ("data",),
    "DecoderSizes": ("sizes",),
    "RecurrentSettings": ("recurrent",),
    "Evaluation": ("evaluation",),
    "Parity": ("parity",),
    "Limits": ("limits",),
    "Arm": ("arms", "*"),
    "Aggregation": ("arms", "*", "aggregation"),
    "StragglerSettings": ("arms", "*", "straggler"),
    "Split": ("arms", "*", "split"),
    "Offload": ("arms", "*", "offload"),
}
NULL = {"type": "null"}
SCHEMA = "experiment.schema.json"


def pages() -> Iterator[Page]:
    yield Page("reference/experiment", make=page)


def page(lang: str) -> str:
    texts = words(lang)["experiment"]
    parts = [f"# {texts['title']}", texts["intro"]]
    models = {"Experiment": schema(), **schema()["$defs"]}
    models |= {union.__name__: union_table(union) for union in unions()}
    head = [texts[key] for key in ("key", "meaning", "type", "default", "labs")]
    for model, place in PLACES.items():
        title = ".".join(place) if place else texts["file"]
        parts.append(f"## {code(title) if place else title}")
        rows = [
            [
                code(key),
                meaning(model, key, lang),
                kind(field, texts),
                default(field, texts),
                labs_of((*place, key), texts),
            ]
            for key, field in models[model]["properties"].items()
            if not field.get("deprecated")
        ]
        parts.append(table(head, rows))
    parts.append(f"## {texts['kinds']}\n\n{texts['kinds_intro']}")
    head = [texts["inferred"], texts["absent"]]
    for union, key in unions().items():
        kinds = texts[key]
        parts.append(f"### {texts[f'kind_of_{union.__name__.lower()}']}")
        parts.append(table(head, ([kinds[tag], absent_keys(union, tag)] for tag in kinds)))
    parts.append(f"## {texts['named']}\n\n{texts['named_intro']}")
    for registry, title in texts["registries"].items():
        parts.append(f"### {title}")
        head = [texts["name"], texts["settings"]]
        parts.append(
            table(
                head, ([code(name), settings(kind)] for name, kind in registered_classes(registry))
            )
        )
    return "\n\n".join(parts) + "\n"


def meaning(model: str, key: str, lang: str) -> str:
    """Return the description of a key.

    Raises:
        SiteError: the description is missing.
    """
    texts = words(lang)["experiment"][model]
    if key not in texts:
        raise SiteError(f"docs/_words/{lang}.toml has no text for {key} below [experiment.{model}]")
    return str(texts[key])


def unions() -> dict[type[TaggedUnion], str]:
    """Return the records of several kinds → the section with texts about their kinds."""
    from dualml.experiment.arm import Arm
    from dualml.experiment.split import Split
    from dualml.parallel.aggregation.settings import Aggregation

    return {Arm: "kind", Aggregation: "aggregation_kind", Split: "split_kind"}


@cache
def schema() -> dict[str, Any]:
    """Return the JSON schema of an experiment file; former names of keys are deprecated."""
    from dualml.experiment.schema import Experiment

    whole = without_one_of(Experiment.model_json_schema())
    own = {union.__name__: PLACES[union.__name__] for union in unions()}
    models = {name: place for name, place in PLACES.items() if name not in own}
    for union in unions():
        models |= {kind.__name__: PLACES[union.__name__] for kind in union.kinds.values()}
    for model, place in models.items():
        table = whole if model == "Experiment" else whole["$defs"][model]
        table["properties"] = dict(named_properties(table["properties"], place))
        if size := table["properties"].get("world_size"):
            several = {"type": "array", "items": {**size}}  # an arm of each size
            table["properties"]["world_size"] = {"anyOf": [size, several]}
    return whole


def without_one_of(part: Any) -> Any:
    """Return a JSON schema with ``anyOf`` in place of ``oneOf``: which kind it is decides a rule
    that a schema cannot state."""
    if isinstance(part, list):
        return [without_one_of(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {"anyOf" if k == "oneOf" else k: without_one_of(v) for k, v in part.items()}


def union_table(union: type[TaggedUnion]) -> dict[str, Any]:
    """Return the JSON schema of the settings of all kinds of a union."""
    table = without_one_of(union.model_json_schema())
    place = PLACES[union.__name__]
    return {**table, "properties": dict(named_properties(table["properties"], place))}


def absent_keys(union: type[TaggedUnion], tag: str) -> str:
    """Return the keys that a kind does not have."""
    from dualml.experiment.keys import present_table

    absent = {name: None for name in union.model_fields if name in union.kinds[tag].absent}
    return " ".join(map(code, present_table(absent, PLACES[union.__name__])))


def named_properties(
    properties: Mapping[str, Any], place: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties of the table at ``place`` by the names that users write, and then those
    with a former name by that."""
    from dualml.experiment.keys import find_key, present_table

    renamed = [(name, key) for name in properties if (key := find_key(place, name))]
    for name, field in properties.items():
        key = find_key(place, name)
        if key is None or not key.values:
            yield key.present if key else name, field
            continue
        ((_, default),) = present_table({name: field["default"]}, place).items()
        values = [default] if "const" in field else list(key.values)
        yield key.present, {"type": "string", "enum": values, "default": default}
    for name, _ in renamed:
        yield name, {**properties[name], "deprecated": True}


def write_schema(folder: Path) -> None:
    """Write the JSON schema beside the page; editors use it to check and complete experiment
    files."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema()}
    (folder / SCHEMA).write_text(json.dumps(whole, indent=1) + "\n", "utf-8")


def kind(field: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    """Describe the type and range of a field in words."""
    if "anyOf" in field:
        several = dict.fromkeys(kind(one, texts) for one in field["anyOf"] if one != NULL)
        if texts["types"]["number"] in several:
            several.pop(texts["types"]["integer"], None)
        return str(texts["or"].join(several))
    if "$ref" in field:
        return texts["types"]["object"]
    for key in ("enum", "const"):
        if key in field:
            values = field[key] if key == "enum" else [field[key]]
            return ", ".join(code(json.dumps(value)) for value in values)
    word = texts["types"][field["type"]]
    if field["type"] == "array":
        items = field.get("items")
        return texts["list_of"].format(kind=kind(items, texts)) if items else word
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[key]:,}" for key, sign in signs.items() if key in field]
    return texts["comma"].join([word, *bounds])


def default(field: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    """Return a field's default as text."""
    if "default" not in field:
        return texts["required"]
    value = field["default"]
    if isinstance(value, dict) and ("$ref" in field or "anyOf" in field or not value):
        return ""
    return "" if value is None else code(toml(value))


def toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


@cache
def labs() -> dict[str, dict[str, Any]]:
    """Return the shipped experiment files: name → table."""
    return {
        path.stem: tomllib.loads(path.read_text("utf-8"))
        for path in sorted((ROOT / "experiments").glob("*.toml"))
    }


def labs_of(path: tuple[str, ...], texts: Mapping[str, Any]) -> str:
    """Return links to the labs whose files set this key."""
    names = [
        name
        for name, file in labs().items()
        if any(has_path(one, path) for one in overlaid_tables(file))
    ]
    if len(names) == len(labs()):
        return str(texts["all"])
    return " ".join(f"[{name}](../labs/{name}.md)" for name in names)


def overlaid_tables(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a file's table and the tables that override it (``quick``, ``small``)."""
    yield table
    for key in ("quick", "small"):
        if isinstance(table.get(key), dict):
            yield from overlaid_tables(table[key])


def has_path(table: Any, path: tuple[str, ...]) -> bool:
    """Return whether a table has a value at this path; ``*`` stands for any key."""
    if not path:
        return True
    if not isinstance(table, dict):
        return False
    inner = table.values() if path[0] == "*" else [table[path[0]]] if path[0] in table else []
    return any(has_path(one, path[1:]) for one in inner)


def registered_classes(registry: str) -> Iterator[tuple[str, type]]:
    """Yield the name and class of everything that an experiment file can name in a registry."""
    from dualml.algorithms.optim import RULES
    from dualml.parallel.aggregation import STRATEGIES
    from dualml.parallel.partition import PARTITIONS

    kinds: dict[str, Mapping[str, type]] = {
        "optimizer": RULES,
        "strategy": STRATEGIES,
        "partition": PARTITIONS,
    }
    yield from kinds[registry].items()


def settings(thing: Any) -> str:
    """Return the fields of a dataclass with their defaults."""
    return ", ".join(
        code(
            field.name
            if field.default is dataclasses.MISSING
            else f"{field.name} = {toml(field.default)}"
        )
        for field in dataclasses.fields(thing)
    )
