"""Registries: a file in a package is discovered; names are unique; tables are ordered."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from dualml.algorithms.optim import RULES
from dualml.common.errors import UserError
from dualml.common.registry import Registry, cited_source
from dualml.parallel.aggregation import STRATEGIES
from dualml.parallel.partition import PARTITIONS
from dualml.parallel.split.schedules import SCHEDULES
from dualml.report.mathml import mathml

ORDER = {
    "optimizer": ["gd", "sgd", "adam", "adamw", "rmsprop", "adagrad"],
    "strategy": [
        "all_reduce",
        "all_gather",
        "reduce_broadcast",
        "parameter_server",
        "reduce_scatter_all_gather",
        "ring",
        "tree",
        "halving_doubling",
        "hierarchical",
        "neighbour",
    ],
    "partition": [
        "contiguous",
        "round_robin",
        "random_partition",
        "random_sampling",
        "distributed_sampler",
        "fractions",
        "label_shards",
        "label_classes",
        "dirichlet_labels",
        "dirichlet_sizes",
        "power_law_sizes",
        "feature_noise",
        "bootstrap",
        "file",
    ],
    "pipeline schedule": ["naive", "gpipe", "1f1b", "eager-1f1b", "interleaved"],
}


@pytest.mark.parametrize(
    "registry", [RULES, STRATEGIES, PARTITIONS, SCHEDULES], ids=lambda r: r.noun
)
def test_what_comes_with_dualml_in_the_order_of_tables(registry: Registry[object]) -> None:
    """Built-in entries keep the order of tables, and added ones may stand between them."""
    assert [name for name in registry if name in ORDER[registry.noun]] == ORDER[registry.noun]
    with pytest.raises(UserError, match=f"unknown {registry.noun} 'nonesuch'"):
        registry.find("nonesuch")


FORMULAS = {
    **{name: list(kind.formulas) for name, kind in STRATEGIES.items()},
    **{
        name: [latex for values in kind.variants.values() for latex in kind(**values).formulas()]
        for name, kind in RULES.items()
    },
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_can_be_drawn(name: str) -> None:
    for latex in FORMULAS[name]:
        assert mathml(latex).startswith("<math"), latex


@pytest.fixture
def room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Registry[object]:
    """A package with three files that register one thing each."""
    name = f"room_of_{request.node.name}"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text(
        f"from dualml.common.registry import Registry\nTHINGS = Registry('thing', '{name}')\n"
    )
    for thing, place in (("late", ", 20"), ("early", ", 10"), ("any", "")):
        (package / f"{thing}.py").write_text(
            f"from {name} import THINGS\n\n"
            f"@THINGS.register('{thing}'{place})\nclass Thing:\n    pass\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    things: Registry[object] = importlib.import_module(name).THINGS
    return things


def test_a_file_is_all_a_thing_needs(room: Registry[object]) -> None:
    assert list(room) == ["early", "late", "any"]
    assert len(room) == 3
    assert room["early"].__module__.endswith(".early")


def test_a_name_belongs_to_one_thing(room: Registry[object]) -> None:
    assert "early" in room
    with pytest.raises(ValueError, match="there is a thing 'early' already"):
        room.register("early")(object())


def test_the_nearest_name_is_offered(room: Registry[object]) -> None:
    with pytest.raises(UserError, match=r"unknown thing 'erly'.*early"):
        room.find("erly")


def test_the_source_of_a_rule_is_what_its_docstring_says() -> None:
    assert cited_source(RULES["adam"]).startswith("Kingma & Ba 2015")
    assert cited_source(test_the_source_of_a_rule_is_what_its_docstring_says) == ""
    for rule in RULES.values():
        assert rule.source()
        assert rule.variants
        assert all(rule(**values).formulas() for values in rule.variants.values())
