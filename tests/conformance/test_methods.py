"""Training methods: the updates that the referee makes, whoever's loop makes them."""

from __future__ import annotations

from typing import Any

import pytest
from conformance import methods
from conformance.backends import ability, create, judged, listed, on_ranks, require

from dualml.backend import backends
from dualml.methods import METHODS
from dualml.methods.driven import Driving

#: Roundings of some hundred numbers.
EXACT = 2e-5
#: Of a lower precision the first loss, in some units of its last place: updates may be skipped.
LOWER = {"bf16": 4 * 2.0**-8, "fp16": 4 * 2.0**-11}
CASES = [(name, n) for name in judged() for n in (1, 2)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def found(request: pytest.FixtureRequest) -> tuple[str, int, dict[str, Any]]:
    """Backend, ranks, and method → what came of it."""
    backend, n = request.param
    require(backends()[backend].framework)
    ability(create(backend), Driving)
    argument = {"backend": backend, "methods": methods.names(backend, n)}
    if n == 1:
        return backend, n, methods.check(None, argument)
    ranks = on_ranks(backend, n, "conformance.methods:check", argument, timeout=90, limit=280)
    assert [set(rank) for rank in ranks] == [set(argument["methods"])] * n
    return backend, n, ranks[0]


def test_each_makes_the_referees_updates(found: tuple[str, int, dict[str, Any]]) -> None:
    backend, _, ran = found
    assert ran
    for name, told in ran.items():
        if "unsupported" in told:
            continue
        precision = METHODS[backend][name].precision
        for run in told["runs"]:
            assert run["finite"], name
            if precision == "fp32":
                assert run["losses"] < EXACT, (name, run)
                assert run["weights"] < EXACT, (name, run)
            else:
                assert run["first"] < LOWER[precision], (name, run)
            assert run["moved"] > 0.05, name


def test_only_engines_and_devices_that_are_missing_are_excused(
    found: tuple[str, int, dict[str, Any]],
) -> None:
    backend, n, ran = found
    for name, told in ran.items():
        if "unsupported" in told:
            package = METHODS[backend][name].package
            missing = package and package not in listed("DUALML_REQUIRE")
            excused = missing or "GPU" in told["unsupported"]
            assert excused, (name, told)
        else:
            assert told["processes"] == n, name
