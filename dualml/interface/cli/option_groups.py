"""Groups of options: a command takes a record, and Typer sees one option for each of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one parameter per option: each parameter whose type is a dataclass is
    replaced by the dataclass's fields, in their order."""
    hints, flat = get_type_hints(command, include_extras=True), list[Parameter]()
    groups: dict[str, Any] = {}
    for parameter in signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            flat += field_parameters(kind)
        else:
            flat.append(parameter.replace(kind=Parameter.POSITIONAL_OR_KEYWORD, annotation=kind))
    outer = Signature(flat)

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        given = outer.bind(*args, **options)
        given.apply_defaults()
        values = dict(given.arguments)
        records = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **records)

    del run.__wrapped__  # its parameters are not those that Typer is to see
    run.__annotations__ = {each.name: each.annotation for each in flat}
    run.__signature__ = outer  # type: ignore[attr-defined]
    return run


def field_parameters(kind: Any) -> list[Parameter]:
    """Return the fields of a dataclass as parameters of a function."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def flatten_groups(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return option → value from ``values``, the arguments of a command by name: the fields of a
    group, a dataclass, stand in its place."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= vars(value) if is_dataclass(value) else {name: value}
    return flat
