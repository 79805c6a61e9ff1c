"""All stages of a model in one process of PyTorch, and `DistributedDataParallel` around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import devices_cases  # noqa: E402
from conformance import split  # noqa: E402

from dualml.common.errors import Unsupported  # noqa: E402
from dualml.experiment.split import Split  # noqa: E402
from dualml.launch.ranks import run_ranks  # noqa: E402
from dualml.runner.worker.join import single_rank_group  # noqa: E402
from dualml_torch.backend import TorchBackend  # noqa: E402
from dualml_torch.parallel.devices import resolve_devices  # noqa: E402

HERE = Path(__file__).resolve().parent


def on_two(lost: bool) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        path = os.environ.get("PYTHONPATH")
        folders = [str(HERE), str(HERE.parent), *([path] if path else [])]
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        return run_ranks("torch", 2, "devices_cases:weights_after", lost, timeout=30, limit=120)


def test_the_wrapper_adds_up_what_lies_on_several_devices() -> None:
    for found in on_two(lost=False):
        assert found["apart"] < 1e-6
        assert found["wrapped"] == found["parameters"]


def test_gradients_that_are_not_added_up_are_seen() -> None:
    assert all(found["apart"] > 1e-3 for found in on_two(lost=True))


def test_logical_devices_do_not_share_memory() -> None:
    """Transfers between logical devices copy, although ``Tensor.to`` returns the same memory for
    the same device."""
    case = {**devices_cases.CASE, "split": {"engine": "devices", "devices": ["cpu:0", "cpu:1"]}}
    backend = TorchBackend("cpu", 1)
    plan = Split(**case["split"]).plan(split.spec_of(case), 1)
    stage: Any = split.make_training(single_rank_group(backend), backend, case, plan).stage
    x = torch.ones(3, requires_grad=True)
    moved = stage.transfer(x, 1)
    assert moved.data_ptr() != x.data_ptr()
    assert not moved.requires_grad


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_devices_that_are_not_there() -> None:
    with pytest.raises(Unsupported, match=r"split\.devices: cuda:1 is not there \(torch .* there"):
        resolve_devices(["cpu:0", "cuda:1"])
    with pytest.raises(Unsupported, match=r"ascend:0 is not there .*torch_npu"):
        resolve_devices(["ascend:0"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are not here")
def test_stages_on_two_gpus_are_the_whole_model() -> None:
    case = {**devices_cases.CASE, "split": {"engine": "devices", "devices": ["cuda:0", "cuda:1"]}}
    backend = TorchBackend("cpu", 1)
    plan = Split(**case["split"]).plan(split.spec_of(case), 1)
    training = split.make_training(single_rank_group(backend), backend, case, plan)
    found, want = (
        split.collect_results(training, case, training.materialize_losses),
        split.expected(case),
    )
    for name, value in want.items():
        assert abs(found[name] - value).max() < 1e-4, name
