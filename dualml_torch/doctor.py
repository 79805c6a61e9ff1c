"""PyTorch checks of `dualml doctor`, run in a separate process."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from dualml.common import machine
from dualml.interface.doctor.finding import DoctorFinding, make_finding, version_finding

WORDS = "dualml_torch.words"


def examine() -> Iterator[DoctorFinding]:
    """Check versions, a real computation on every device, and torchvision; yield a finding for
    each, and one with the number of threads.

    Raises:
        Exception: torch does not work.
    """
    torch = importlib.import_module("torch")  # here, where a failure is a finding

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield version_finding("torch", torch.__version__, "torch", build)
    _compute("cpu")
    yield make_finding("device cpu", "ok", "computes", package=WORDS)
    yield from _gpus()
    yield _torchvision(torch.__version__)
    n = torch.get_num_threads()
    yield make_finding("threads", "ok", "threads", package=WORDS, n=n)


def _compute(device: str) -> None:
    """Compute a matrix product's gradient on a device; raise RuntimeError if the device fails or
    the result is wrong."""
    import torch

    x = torch.full((64, 64), 2.0, device=device, requires_grad=True)
    (x @ x).sum().backward()
    assert x.grad is not None
    if not bool((x.grad == 256).all()):  # 64·2 from each factor
        raise RuntimeError(f"a matrix product on {device} gives a wrong gradient")


def _gpus() -> Iterator[DoctorFinding]:
    """Yield a finding for each GPU that torch sees, a warning if it does not compute; one warning
    if torch can use none of the machine's GPUs; nothing on a machine without."""
    import torch

    from dualml_torch.common.environment import missing_cuda_reason

    if not torch.cuda.is_available():
        if machine.query_gpus()[0]:  # a GPU that torch cannot use
            problem, _, remedy = missing_cuda_reason().partition("; ")
            yield make_finding(
                "device cuda", "warn", "unusable_gpu", remedy, package=WORDS, problem=problem
            )
        return
    for index in range(torch.cuda.device_count()):
        item, name = f"device cuda:{index}", torch.cuda.get_device_name(index)
        try:
            _compute(f"cuda:{index}")
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            yield make_finding(
                item, "warn", "gpu_fails", "gpu_fails", package=WORDS, name=name, reason=reason
            )
        else:
            yield make_finding(item, "ok", "gpu_computes", package=WORDS, name=name)


def _torchvision(torch_version: str) -> DoctorFinding:
    """Return a finding on whether torchvision imports, a warning if it is missing or does not: its
    compiled operators fail with another build of torch."""
    try:
        installed = version("torchvision")
    except PackageNotFoundError:
        remedy = "pip install 'dualml[torch]'"
        return make_finding("torchvision", "warn", "no_torchvision", remedy, package=WORDS)
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        kind = "cpu" if "+cpu" in torch_version else "cuda"
        return make_finding(
            "torchvision",
            "warn",
            "torchvision_unfit",
            f"one_index_{kind}",
            package=WORDS,
            version=installed,
            torch=torch_version,
            reason=reason,
        )
    return make_finding("torchvision", "ok", "torchvision", package=WORDS, version=installed)
