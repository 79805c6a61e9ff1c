"""The device that a PyTorch worker computes on, and the facts about it that the run folder
records."""

from __future__ import annotations

import os
import platform
import re

import numpy as np
import torch

from dualml.common import machine
from dualml.common.errors import Unsupported, UserError
from dualml_torch.common.environ import COMPILE, MEMORY_FORMAT

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_DYNAMIC",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    *machine.WAITING,
    MEMORY_FORMAT,
    COMPILE,
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def resolve_device(name: str = "auto") -> torch.device:
    """Return the device of a name: ``auto`` (a GPU if there is one), ``cpu``, ``cuda[:i]``,
    ``gpu[:i]``.

    Raises:
        UserError: an unknown word, or a GPU that does not exist; the message gives the reason.
        Unsupported: a kind of device PyTorch does not drive by itself (``ascend``).
    """
    kind, index = machine.parse_device(name)
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if kind == "ascend":
        raise Unsupported("PyTorch drives Ascend only with torch_npu, which dualml does not use")
    if not torch.cuda.is_available():
        raise UserError(f"no CUDA device: {missing_cuda_reason()}")
    count = torch.cuda.device_count()
    if index >= count:
        raise UserError(f"no CUDA device {index}: of {count}, use cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", index)


def missing_cuda_reason() -> str:
    """Return the reason why ``torch.cuda.is_available()`` is false, with the remedy; call it only
    then."""
    from dualml.interface.doctor import fit

    (gpus, newest), cuda = machine.query_gpus(), torch.version.cuda
    if not gpus:
        what = "has CUDA, but" if cuda else "is a CPU build, and"
        return f"torch {torch.__version__} {what} NVIDIA's driver finds no GPU; use --device cpu"
    chosen = fit.newest_torch(fit.read_machine_facts())
    remedy = chosen.command if chosen else "use --device cpu"
    if cuda is None:
        return f"torch {torch.__version__} is a CPU build; {remedy}"
    driver, least = gpus[0].driver, fit.oldest_driver(cuda)
    if least and not fit.is_at_least(driver, least):
        return (
            f"torch {torch.__version__} is built with CUDA {cuda}, which needs driver {least} or "
            f"newer, and this is {driver}; update the driver, or {remedy}"
        )
    return (
        f"torch {torch.__version__} is built with CUDA {cuda}, the driver {driver} supports CUDA "
        f"{newest}; {remedy}"
    )


def environment(device: str | torch.device, threads: int) -> dict[str, str]:
    """Return the facts that decide this process's numbers and speed, as flat text; unknown ones are
    omitted.

    Args:
        device: from `resolve_device`.
        threads: threads the worker asked for; PyTorch's own count is recorded if it is 0.
    """
    place = torch.device(device)
    config = torch.__config__.show()
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "build": f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU",
        "device": str(place),
        "device_name": device_name(place),
        "cudnn": str(torch.backends.cudnn.version() or "") if place.type == "cuda" else "",
        "threads": str(threads or torch.get_num_threads()),
        "interop_threads": str(torch.get_num_interop_threads()),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": "yes" if torch.are_deterministic_algorithms_enabled() else "no",
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": _first_match(config, r"BLAS_INFO=(\w+)"),
        "onednn": _first_match(config, r"MKL-DNN v([\d.]+)"),
    }
    facts |= {name: os.environ.get(name, "") for name in VARIABLES}
    return {key: value for key, value in facts.items() if value} | machine.environment()


def device_name(device: torch.device) -> str:
    """Return the model name of the GPU or, for any other device, of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return machine.cpu_model()


def _first_match(text: str, pattern: str) -> str:
    """Return what the first group of a pattern matches in a text; an empty string without a
    match."""
    match = re.search(pattern, text)
    return match[1] if match else ""
