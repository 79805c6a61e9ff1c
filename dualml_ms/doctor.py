"""What `dualml doctor` asks of MindSpore, in a process of its own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from importlib.metadata import version

from dualml import machine
from dualml.doctor.finding import Finding, install, release, version_finding
from dualml_ms.isa import CAP, VARIABLE, choice


def examine() -> Iterator[Finding]:
    """Versions, NumPy, a real computation, the devices, the convolution trap.

    Raises if MindSpore does not work.
    """
    yield version_finding("mindspore", version("mindspore"), "mindspore")
    numpy = version("numpy")
    if release(numpy) >= (2,):
        yield Finding(
            "numpy",
            "problem",
            f"{numpy}: MindSpore needs NumPy 1 and breaks silently with NumPy 2",
            f"{numpy}：MindSpore 需要 NumPy 1，与 NumPy 2 一起会悄悄出错",
            **install("'numpy<2'"),
        )
        raise RuntimeError(f"NumPy {numpy} is too new for MindSpore")
    yield Finding("numpy", "ok", f"{numpy} fits", f"{numpy} 匹配")
    importlib.import_module("mindspore")  # here, where a failure is a finding
    yield from _devices()
    yield _convolutions()
    n = os.environ.get("OMP_NUM_THREADS", "?")
    yield Finding("threads", "ok", f"{n} per worker", f"每个进程 {n}")


def _compute() -> None:
    """A matrix product and its gradient; raises where the device cannot, or gets it wrong."""
    import mindspore as ms
    import numpy as np

    x = ms.Tensor(np.full((64, 64), 2.0, np.float32))
    grad = ms.grad(lambda a: ms.ops.matmul(a, a).sum())(x)
    if not (grad.asnumpy() == 256).all():  # 64·2 from each factor
        raise RuntimeError("a matrix product gives a wrong gradient")


def _devices() -> Iterator[Finding]:
    from dualml.errors import Unsupported
    from dualml_ms.environment import resolve_device

    device = resolve_device("auto")
    _compute()
    yield Finding(f"device {device.lower()}", "ok", "computes", "可以计算")
    if device == "CPU" and machine.nvidia()[0]:
        try:
            resolve_device("gpu")
        except Unsupported as error:
            told, _, remedy = str(error).partition("; ")
            yield Finding("device gpu", "warn", told, f"有 GPU，但用不了：{told}", remedy, remedy)


def _convolutions() -> Finding:
    """Which instruction set convolutions use, and from what measurement."""
    chosen = choice()
    numbers = ""
    if chosen.default and chosen.capped:
        before, after = chosen.default["convolution_ms"], chosen.capped["convolution_ms"]
        numbers = f"{before:.1f} → {after:.1f} ms"
    told = {
        "user": (f"{VARIABLE}={chosen.isa}, set by you", f"{VARIABLE}={chosen.isa}，由用户设置"),
        "measured_cap": (
            f"trap avoided with {VARIABLE}={chosen.isa}: LeNet's convolutions {numbers}",
            f"已用 {VARIABLE}={chosen.isa} 避开陷阱：LeNet 卷积 {numbers}",
        ),
        "measured_default": (
            f"no trap here: LeNet's convolutions without and with {CAP}: {numbers}",
            f"本机没有陷阱：LeNet 卷积默认与 {CAP}：{numbers}",
        ),
        "not_needed": (chosen.reason, "该 CPU 没有 AVX-512，无需测量"),
    }
    if chosen.code in told:
        return Finding("convolutions", "ok", *told[chosen.code])
    return Finding(
        "convolutions",
        "warn",
        f"not known whether they are slow on this CPU: {chosen.reason}",
        f"无法判断卷积在该 CPU 上是否缓慢：{chosen.reason}",
        f"export {VARIABLE}=AVX2 if MindSpore trains slowly",
        f"若 MindSpore 训练缓慢，请 export {VARIABLE}=AVX2",
    )
