"""Fixtures of the conformance suite."""

from __future__ import annotations

import pytest
from conformance.backends import create, judged, rivals

from dualml.backend import Backend


@pytest.fixture(scope="session", params=judged())
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend under test."""
    return create(request.param)


@pytest.fixture(scope="session", params=rivals())
def rival(request: pytest.FixtureRequest) -> Backend:
    """Every backend that is compared with the reference."""
    return create(request.param)
