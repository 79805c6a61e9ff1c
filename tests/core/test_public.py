"""Every public name (`docs/public.toml`) exists and is documented, by rules a machine can check."""

from __future__ import annotations

import re
from functools import cache

import pytest
from public_names import Item, find, items, parameters, public_modules, raised_errors

import dualml
from dualml.algorithms.optim import RULES
from dualml.common.registry import cited_source
from dualml.parallel.aggregation import STRATEGIES
from dualml.parallel.partition import PARTITIONS
from dualml.parallel.split.schedules import SCHEDULES

ERRORS = {"UserError", "TrialError", "CommunicationError", "Unsupported"}
#: Annotations of arrays; the class or the module may state the shape for all of them.
ARRAYS = re.compile(r"\b(NDArray|Array|Arrays|Index|Tensor|Params|State|ndarray)\b")
SHAPE = re.compile(r"\(\w+,\)|\(\w+(, \w+)+\)|\bshapes?\b|\b1-D\b|\blengths?\b|\bscalar\b")
#: Names of quantities, and the words that are their units.
QUANTITY = re.compile(r"(_s|_ms|_ns|_mb|bytes|seconds|timeout|limit)$")
UNIT = re.compile(r"\b(seconds?|s|ms|ns|bytes?|B|MiB)\b")
#: Registered classes without a paper, and the reason.
NO_SOURCE = {"file": "reads what somebody else has dealt"}


@cache
def all_items() -> tuple[Item, ...]:
    return tuple(
        item
        for module in public_modules()
        for name in module["names"]
        for item in items(module["name"], name)
    )


def undocumented(item: Item) -> bool:
    return not item.doc.strip()


def unnamed(item: Item) -> list[str]:
    """Return parameters, if there are two or more, that are neither in an ``Args:`` section nor in
    code quotes. A class may document what its methods share once."""
    names = list(parameters(item))
    return [name for name in names if not documents(item, name)] if len(names) > 1 else []


def documents(item: Item, name: str) -> bool:
    entry = rf"^ *(\*{{0,2}}\w+, )*\*{{0,2}}{name}(, \*{{0,2}}\w+)*:"
    quoted = rf"``[^`]*(?<!\w){name}(?!\w)[^`]*``"
    return bool(re.search(entry, item.text, re.M) or re.search(quoted, item.text))


def shapeless(item: Item) -> bool:
    return any(map(ARRAYS.search, parameters(item).values())) and not SHAPE.search(item.text)


def unitless(item: Item) -> list[str]:
    return [n for n in parameters(item) if QUANTITY.search(n) and not UNIT.search(item.text)]


def silent(item: Item) -> set[str]:
    """Return the errors that a function raises and does not document."""
    return {
        name
        for name in raised_errors(item) & ERRORS
        if not re.search(rf"Raises\b.*\b{name}\b", item.doc, re.S)
    }


def test_the_list_is_whole() -> None:
    modules = public_modules()
    names = [module["name"] for module in modules]
    assert len(names) == len(set(names))
    for module in modules:
        assert module.keys() == {"name", "title", "names"}, module["name"]
        assert module["title"].keys() == {"en", "zh"}
        assert len(module["names"]) == len(set(module["names"]))
        assert not any(name.startswith("_") for name in module["names"])
    assert dict(zip(names, modules, strict=True))["dualml"]["names"] == dualml.__all__


def test_every_name_is_defined_and_documented() -> None:
    assert [item.label for item in all_items() if undocumented(item)] == []


def test_parameters_are_named() -> None:
    assert {item.label: bad for item in all_items() if (bad := unnamed(item))} == {}


def test_arrays_have_shapes() -> None:
    assert [item.label for item in all_items() if shapeless(item)] == []


def test_quantities_have_units() -> None:
    assert {item.label: bad for item in all_items() if (bad := unitless(item))} == {}


def test_errors_are_told() -> None:
    assert {item.label: bad for item in all_items() if (bad := silent(item))} == {}


@pytest.mark.parametrize(
    "registry", [RULES, STRATEGIES, PARTITIONS, SCHEDULES], ids=lambda registry: registry.noun
)
def test_algorithms_name_their_source(registry: dict[str, object]) -> None:
    assert {name for name, thing in registry.items() if not cited_source(thing)} <= NO_SOURCE.keys()


def test_both_backends_offer_the_same() -> None:
    def offered_names(package: str) -> set[str]:
        return {
            f"{module['name'].removeprefix(package)}:{name.replace(called, '')}"
            for module in public_modules()
            if module["name"].startswith(f"{package}.")
            for name in module["names"]
            for called in [{"dualml_torch": "Torch", "dualml_ms": "MindSpore"}[package]]
        }

    assert offered_names("dualml_torch") ^ offered_names("dualml_ms") == {
        ".experiment.data:torchvision_mnist",
        ".experiment.data:mindspore_mnist",
    }


def test_the_rules_notice() -> None:
    """Each rule notices a docstring that breaks it and accepts one that does not."""
    import ast

    def item(code: str) -> Item:
        node = ast.parse(code).body[0]
        return Item("x", node, ast.get_docstring(node) or "", "")

    head = "def f(x: NDArray, timeout: float) -> None:\n    "
    raising = "\n    raise UserError('no')"
    bad = item(head + '"""Waits for a day."""' + raising)
    good = item(
        head + '"""Waits.\n\n    Args:\n        x: (N,).\n        timeout: seconds.\n\n'
        '    Raises:\n        UserError: always.\n    """' + raising
    )
    assert undocumented(item(head + "pass"))
    assert unnamed(bad) == ["x", "timeout"]
    assert shapeless(bad)
    assert unitless(bad) == ["timeout"]
    assert silent(bad) == {"UserError"}
    assert not any(rule(good) for rule in (undocumented, unnamed, shapeless, unitless, silent))
    with pytest.raises(LookupError):
        find("dualml", "nothing")
