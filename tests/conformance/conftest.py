"""Fixtures of the conformance suite."""

from __future__ import annotations

import pytest
from conformance.backends import create, framework_backends, tested_backends

from dualml.backend import Backend


@pytest.fixture(scope="session", params=tested_backends())
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend under test."""
    return create(request.param)


@pytest.fixture(scope="session", params=framework_backends())
def framework_backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend that is compared with the reference."""
    return create(request.param)
