"""The backends under test, and helpers that create them or skip a test.

``DUALML_CONFORMANCE`` (a comma list of backend names) chooses them; otherwise all that are
registered and whose framework is installed. There is always one: the reference needs no framework.

``DUALML_CONFORMANCE_DEVICE`` is the device they compute on (``cuda``; ``cpu`` without it).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dualml.backend import Backend, Capability, SupportsCapabilities, backends
from dualml.backend.conformance import Adapter, load_adapter
from dualml.backend.reference.backend import NumpyBackend
from dualml.common.errors import Unsupported
from dualml.launch.ranks import run_ranks

A = TypeVar("A", bound=Capability)
HERE = Path(__file__).resolve().parent
REFEREE = NumpyBackend()
#: Largest relative distance between two orders of the same few operations, by dtype: some units in
#: the last place (2⁻²³ is 1.2e-7).
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}
DEVICE = os.environ.get("DUALML_CONFORMANCE_DEVICE", "cpu")
#: (backend, ranks) → why no such group can exist on this device; the same for every test.
REFUSED: dict[tuple[str, int], str] = {}


def env_list(variable: str) -> list[str]:
    """Return the comma-separated words of an environment variable."""
    return [word for word in os.environ.get(variable, "").split(",") if word]


def tested_backends() -> list[str]:
    """Return the names of the backends under test.

    Raises:
        pytest.UsageError: ``DUALML_CONFORMANCE`` names none that is registered.
    """
    known, chosen = backends(), env_list("DUALML_CONFORMANCE")
    if unknown := sorted(set(chosen) - set(known)):
        raise pytest.UsageError(f"DUALML_CONFORMANCE: no backend {unknown}; there are {[*known]}")
    if chosen:
        return [name for name in known if name in chosen]
    return [name for name in known if known[name].installed()]


def rank_backends() -> list[str]:
    """Return the backends under test that can have several ranks."""
    return [name for name in tested_backends() if backends()[name].ranks != "none"]


def framework_backends() -> list[Any]:
    """Return the backends that are compared with the reference, as parameters of a test."""
    return or_skipped([name for name in tested_backends() if name != REFEREE.name], REFEREE.name)


def or_skipped(cases: list[Any], *values: str) -> list[Any]:
    """Return the cases of a comparison with the reference: without any, because the reference alone
    is under test, one of ``values`` that is skipped with that reason."""
    alone = pytest.mark.skip(reason="the reference is not compared with itself")
    return cases or [pytest.param(*values, marks=alone)]


def require(framework: str) -> Any:
    """Import ``framework`` or skip the test; fail where ``DUALML_REQUIRE`` lists it."""
    if framework in env_list("DUALML_REQUIRE"):
        return importlib.import_module(framework)
    return pytest.importorskip(framework, reason=f"{framework} is not installed")


def create(name: str) -> Backend:
    """Create a backend on the device under test."""
    info = backends()[name]
    if DEVICE != "cpu":  # what a worker has before the import, such as reproducible products
        for variable, value in info.environ(1).items():
            os.environ.setdefault(variable, value)
    require(info.framework)
    return info.create(device_of(name), 1)


def device_of(name: str) -> str:
    """Return the device of a backend: the reference always runs on the CPU."""
    return "cpu" if name == REFEREE.name else DEVICE


def adapter_of(name: str) -> Adapter:
    return load_adapter(backends()[name])


def ability(able: SupportsCapabilities, kind: type[A]) -> A:
    """Return ``able`` as this capability; skip the test if the backend does not have it."""
    try:
        return able.require_capability(kind)
    except Unsupported as reason:
        pytest.skip(str(reason))


def tolerance(backend: Backend) -> float:
    """Return the allowed rounding distance in a backend's dtype."""
    return TOLERANCE[backend.dtype]


def on_ranks(name: str, size: int, target: str, argument: Any = None, **options: Any) -> list[Any]:
    """Run ``"conformance.module:function"`` on each rank of a group and return the results by
    rank."""
    require(backends()[name].framework)
    if (name, size) in REFUSED:
        pytest.skip(REFUSED[name, size])
    paths: Sequence[str] = [os.environ.get("PYTHONPATH", ""), str(HERE.parent)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        try:
            return run_ranks(name, size, target, argument, device=device_of(name), **options)
        except Unsupported as reason:
            if DEVICE != "cpu":
                REFUSED[name, size] = str(reason)
            pytest.skip(str(reason))
