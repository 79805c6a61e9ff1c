"""The framework's own data parallelism, and buckets sent early, give the same sum over the
ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conformance import native
from conformance.backends import ability, create, on_ranks, rank_backends, tolerance

from dualml.backend import (
    ActivationCapture,
    Backend,
    Capability,
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    PipelineStages,
    ProcessGroups,
    RemoteProcedureCalls,
    SupportsCapabilities,
)
from dualml.common.errors import Unsupported

ABILITIES: dict[str, type[Capability]] = {
    "native": FrameworkDataParallel,
    "overlapping": CommOverlap,
}
#: Capability → numbers of ranks.
SIZES = {"native": (2,), "overlapping": (2, 3)}
CASES = [
    (name, kind, n) for name in rank_backends() for kind, sizes in SIZES.items() for n in sizes
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def rank_results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the results of each rank, and the tolerance of the backend."""
    name, kind, n = request.param
    backend = create(name)
    ability(backend.training(native.recipe()), ABILITIES[kind])
    ranks = on_ranks(name, n, "conformance.native:check", {"kind": kind}, timeout=60)
    # Sums in another order, and a loss that is scaled instead of its gradient.
    return {"ranks": ranks, "tolerance": tolerance(backend)}


def test_the_helper_can_fail() -> None:
    one = {"w": np.ones(3)}
    assert native.distance({"w": np.array([1, 1, 1.1])}, one) == pytest.approx(0.1)
    assert native.distance(one, one) == 0


@pytest.mark.parametrize("case", native.PARTS)
def test_gradients_are_summed_over_the_ranks(rank_results: dict[str, Any], case: str) -> None:
    """Each rank's gradient is weighted by its factor, however many samples each rank has."""
    for rank in rank_results["ranks"]:
        assert rank["errors"][case] <= rank_results["tolerance"]


@pytest.mark.parametrize("case", native.PARTS)
def test_plain_pieces_of_the_same_model_are_left_alone(
    rank_results: dict[str, Any], case: str
) -> None:
    for rank in rank_results["ranks"]:
        assert rank["errors"][f"{case}, plain afterwards"] == 0


def test_all_ranks_train_the_same_model(rank_results: dict[str, Any]) -> None:
    """All ranks train the same model bit for bit, and up to rounding the one that sums
    afterwards."""
    assert len({rank["digest"] for rank in rank_results["ranks"]}) == 1
    for rank in rank_results["ranks"]:
        assert rank["trained"] <= 10 * rank_results["tolerance"]
        assert rank["traced"] <= rank_results["tolerance"]
        assert rank["moved"] > 1e-3
        np.testing.assert_allclose(*rank["losses"], rtol=10 * rank_results["tolerance"])


def test_settings_of_the_process_are_left_as_they_were(rank_results: dict[str, Any]) -> None:
    for rank in rank_results["ranks"]:
        before, after = rank["settings"]
        assert before == after


def test_parameters_can_be_read_and_replaced(rank_results: dict[str, Any]) -> None:
    for rank in rank_results["ranks"]:
        assert rank["buckets"] > 1
        assert rank["assigned"] == 0


def test_the_records_say_what_was_used(rank_results: dict[str, Any]) -> None:
    for rank in rank_results["ranks"]:
        assert rank["detail"]


# --- what a backend does not have -----------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [ActivationCapture, GradientAccess, CommOverlap, FrameworkDataParallel, DeviceReplication],
)
def test_a_training_has_an_ability_or_says_in_one_line_why_not(backend: Backend, kind: Any) -> None:
    assert_explained(backend.training(native.recipe()), kind)


@pytest.mark.parametrize("kind", [ProcessGroups, PipelineStages, RemoteProcedureCalls])
def test_a_backend_has_an_ability_or_says_in_one_line_why_not(backend: Backend, kind: Any) -> None:
    assert_explained(backend, kind)


def assert_explained(able: SupportsCapabilities, kind: type[Capability]) -> None:
    """Assert that a missing capability is explained by a one-line reason."""
    if isinstance(able, kind):
        assert able.require_capability(kind) is able
        return
    with pytest.raises(Unsupported) as caught:
        able.require_capability(kind)
    reason = str(caught.value)
    assert reason.strip()
    assert "\n" not in reason


def test_native_training_needs_a_group(backend: Backend) -> None:
    alone: Any = SimpleNamespace(group=None, size=1, rank=0)
    training = backend.training(native.recipe())
    with pytest.raises(Unsupported):
        training.require_capability(FrameworkDataParallel).make_framework_buckets(alone)
