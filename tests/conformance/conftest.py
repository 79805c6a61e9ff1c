"""The conformance suite runs on every registered backend."""

from __future__ import annotations

import pytest
from conformance.backends import require

from dualml.backend import Backend, backends


@pytest.fixture(scope="session", params=list(backends()))
def backend(request: pytest.FixtureRequest) -> Backend:
    """One backend on the CPU; skipped, or failed where required, if its framework is missing."""
    require(request.param)
    return backends()[request.param].create("cpu", 1)
