"""The optional capabilities of the reference, and how a missing capability is explained."""

from __future__ import annotations

from typing import Any

import pytest
from conformance import native

from dualml.backend import (
    Ability,
    Able,
    Divisible,
    Grouping,
    NativeParallel,
    Observable,
    Overlapping,
    RemoteCalls,
    Replicable,
    Staging,
    Weighable,
)
from dualml.errors import Unsupported
from dualml.reference.backend import NumpyBackend


@pytest.mark.parametrize("kind", [Observable, Divisible, Overlapping, Weighable])
def test_the_referee_has(kind: type[Ability]) -> None:
    training = NumpyBackend().training(native.recipe())
    assert training.ability(kind) is training


def test_the_referee_has_stages() -> None:
    backend = NumpyBackend()
    assert backend.ability(Staging) is backend


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(NativeParallel, "no data parallel training of its own"), (Replicable, "one device")],
)
def test_what_the_referee_lacks(kind: type[Ability], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        NumpyBackend().training(native.recipe()).ability(kind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(RemoteCalls, "no remote procedure calls"), (Grouping, "cannot join ranks that are proc")],
)
def test_what_its_backend_lacks(kind: type[Ability], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        NumpyBackend().ability(kind)


class Looks(Able):
    """Has the method without declaring the capability."""

    def replicas(self) -> None:
        raise AssertionError


class Declares(Looks, Replicable):
    def replicas(self) -> None:
        """Declare the capability with its method, as required."""


def test_an_ability_is_declared_and_not_recognised_by_its_methods() -> None:
    able: Any = Declares()
    assert able.ability(Replicable) is able
    with pytest.raises(Unsupported, match=r"^this backend cannot split a batch over the GPUs"):
        Looks().ability(Replicable)
