"""The optional capabilities of the MindSpore backend, and its reasons for missing ones."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mindspore")

from conformance import native

from dualml.backend import (
    ActivationCapture,
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    PipelineStages,
    ProcessGroups,
    RemoteProcedureCalls,
    backends,
)
from dualml.common.errors import Unsupported


def backend() -> Any:
    return backends()["mindspore"].create("cpu", 1)


@pytest.mark.parametrize("kind", [ActivationCapture, GradientAccess, FrameworkDataParallel])
def test_a_training_has(kind: Any) -> None:
    training = backend().training(native.recipe())
    assert training.require_capability(kind) is training


@pytest.mark.parametrize("kind", [ProcessGroups, PipelineStages])
def test_the_backend_has(kind: Any) -> None:
    assert isinstance(backend().require_capability(kind), kind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(CommOverlap, "one by one on a CPU"), (DeviceReplication, "no training by replicas")],
)
def test_what_a_training_lacks(kind: Any, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        backend().training(native.recipe()).require_capability(kind)


def test_it_cannot_call_stages_and_says_what_runs_instead() -> None:
    with pytest.raises(Unsupported, match='no remote procedure calls; engine = "messages" runs'):
        backend().require_capability(RemoteProcedureCalls)


def test_the_records_name_what_sends() -> None:
    from dualml_ms.parallel.data_parallel import MindSporeDataParallel

    assert (
        MindSporeDataParallel.detail == "mindspore.nn.DistributedGradReducer in DATA_PARALLEL mode"
    )
