"""The conformance suite runs on every registered backend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conformance.backends import require

from dualml.backend import Backend, backends

HERE = Path(__file__).resolve().parent


def of_the_referee(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    values = [v for p in params.values() for v in (p if isinstance(p, tuple) else (p,))]
    return HERE in item.path.parents and "numpy" in [v for v in values if isinstance(v, str)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a framework's own environment the framework; the referee has been judged in the core's."""
    if not os.environ.get("DUALML_REQUIRE"):
        return
    left_out = [item for item in items if of_the_referee(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", params=list(backends()))
def backend(request: pytest.FixtureRequest) -> Backend:
    """One backend on the CPU; skipped, or failed where required, if its framework is missing."""
    require(request.param)
    return backends()[request.param].create("cpu", 1)
