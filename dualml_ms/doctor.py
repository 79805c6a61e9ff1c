"""MindSpore checks of `dualml doctor`, run in a separate process."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from importlib.metadata import version

from packaging.version import Version

from dualml.common import machine
from dualml.interface.doctor.finding import DoctorFinding, make_finding, version_finding
from dualml_ms.common.isa import CAP, VARIABLE, choose_isa

WORDS = "dualml_ms.words"
#: Choices of an instruction set that need no action.
SETTLED_CHOICES = ("user", "measured_cap", "measured_default", "not_needed")


def examine() -> Iterator[DoctorFinding]:
    """Yield the findings of `dualml doctor` about MindSpore: versions, NumPy, a real computation on
    the devices, the instruction set of convolutions, and the number of threads.

    Raises:
        Exception: MindSpore does not work; the findings so far have been yielded.
    """
    yield version_finding("mindspore", version("mindspore"), "mindspore")
    numpy = version("numpy")
    if Version(numpy).major >= 2:
        remedy = "pip install 'numpy<2'"
        yield make_finding("numpy", "problem", "numpy_2", remedy, package=WORDS, numpy=numpy)
        raise RuntimeError(f"NumPy {numpy} is too new for MindSpore")
    yield make_finding("numpy", "ok", "numpy", package=WORDS, numpy=numpy)
    importlib.import_module("mindspore")  # here, where a failure is a finding
    yield from _devices()
    yield _convolutions()
    n = os.environ.get("OMP_NUM_THREADS", "?")
    yield make_finding("threads", "ok", "threads", package=WORDS, n=n)


def _compute() -> None:
    """Compute a matrix product and its gradient; raise if the device fails or the result is
    wrong."""
    import mindspore as ms
    import numpy as np

    x = ms.Tensor(np.full((64, 64), 2.0, np.float32))
    grad = ms.grad(lambda a: ms.ops.matmul(a, a).sum())(x)
    if not (grad.asnumpy() == 256).all():  # 64·2 from each factor
        raise RuntimeError("a matrix product gives a wrong gradient")


def _devices() -> Iterator[DoctorFinding]:
    """Yield a finding that the automatically selected device, which this process then keeps,
    computes correctly, then a warning if this machine has a GPU that MindSpore cannot use."""
    from dualml.common.errors import Unsupported
    from dualml_ms.common.environment import resolve_device

    device = resolve_device("auto")
    _compute()
    yield make_finding(f"device {device.lower()}", "ok", "computes", package=WORDS)
    if device == "CPU" and machine.query_gpus()[0]:
        try:
            resolve_device("gpu")
        except Unsupported as error:
            problem, _, remedy = str(error).partition("; ")
            yield make_finding(
                "device gpu", "warn", "unusable_gpu", remedy, package=WORDS, problem=problem
            )


def _convolutions() -> DoctorFinding:
    """Return a finding with the instruction set that convolutions use and the measurement behind
    the choice, which is made now, in seconds, if none is stored; a warning if it failed."""
    chosen = choose_isa()
    numbers = ""
    if chosen.default and chosen.capped:
        before, after = chosen.default["convolution_ms"], chosen.capped["convolution_ms"]
        numbers = f"{before:.1f} → {after:.1f} ms"
    known = chosen.code in SETTLED_CHOICES
    return make_finding(
        "convolutions",
        "ok" if known else "warn",
        f"isa_{chosen.code if known else 'unknown'}",
        "" if known else "isa_unknown",
        package=WORDS,
        variable=VARIABLE,
        isa=chosen.isa,
        cap=CAP,
        numbers=numbers,
        reason=chosen.reason,
    )
