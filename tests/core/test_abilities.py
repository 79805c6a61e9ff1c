"""The optional capabilities of the reference, and how a missing capability is explained."""

from __future__ import annotations

from typing import Any

import pytest
from conformance import native

from dualml.backend import (
    ActivationCapture,
    Capability,
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    MemoryReport,
    PipelineStages,
    ProcessGroups,
    RemoteProcedureCalls,
    SupportsCapabilities,
)
from dualml.backend.reference.backend import NumpyBackend
from dualml.common.errors import Unsupported


@pytest.mark.parametrize("kind", [ActivationCapture, GradientAccess, CommOverlap, MemoryReport])
def test_the_referee_has(kind: type[Capability]) -> None:
    training = NumpyBackend().training(native.recipe())
    assert training.require_capability(kind) is training


def test_the_referee_has_stages() -> None:
    backend = NumpyBackend()
    assert backend.require_capability(PipelineStages) is backend


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FrameworkDataParallel, "no data parallel training of its own"),
        (DeviceReplication, "one device"),
    ],
)
def test_what_the_referee_lacks(kind: type[Capability], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        NumpyBackend().training(native.recipe()).require_capability(kind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (RemoteProcedureCalls, "no remote procedure calls"),
        (ProcessGroups, "cannot join ranks that are proc"),
    ],
)
def test_what_its_backend_lacks(kind: type[Capability], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        NumpyBackend().require_capability(kind)


class UndeclaredReplicas(SupportsCapabilities):
    """Has the method without declaring the capability."""

    def enable_replicas(self) -> None:
        raise AssertionError


class Declares(UndeclaredReplicas, DeviceReplication):
    def enable_replicas(self) -> None:
        """Declare the capability with its method, as required."""


def test_an_ability_is_declared_and_not_recognised_by_its_methods() -> None:
    able: Any = Declares()
    assert able.require_capability(DeviceReplication) is able
    with pytest.raises(Unsupported, match=r"^this backend cannot split a batch over the GPUs"):
        UndeclaredReplicas().require_capability(DeviceReplication)
