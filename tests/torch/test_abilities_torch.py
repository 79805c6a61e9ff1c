"""The optional capabilities of the PyTorch backend."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conformance import native  # noqa: E402

from dualml.backend import (  # noqa: E402
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
from dualml.common.errors import Unsupported  # noqa: E402


def backend() -> Any:
    return backends()["torch"].create("cpu", 1)


@pytest.mark.parametrize(
    "kind",
    [ActivationCapture, GradientAccess, CommOverlap, FrameworkDataParallel, DeviceReplication],
)
def test_a_training_has(kind: Any) -> None:
    training = backend().training(native.recipe())
    assert training.require_capability(kind) is training


@pytest.mark.parametrize("kind", [ProcessGroups, PipelineStages, RemoteProcedureCalls])
def test_the_backend_has(kind: Any) -> None:
    assert isinstance(backend().require_capability(kind), kind)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are GPUs")
def test_replicas_need_several_gpus() -> None:
    with pytest.raises(Unsupported, match="needs two GPUs; there are"):
        backend().training(native.recipe()).enable_replicas()


def test_the_records_name_what_sends() -> None:
    from dualml_torch.parallel.data_parallel import TorchDataParallel
    from dualml_torch.parallel.overlap import TorchReducingBuckets

    assert TorchDataParallel.detail == "torch.nn.parallel.DistributedDataParallel"
    assert "gradient hooks" in TorchReducingBuckets.detail
