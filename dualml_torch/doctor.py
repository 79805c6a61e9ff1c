"""What `dualml doctor` asks of PyTorch, in a process of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from dualml import machine
from dualml.doctor.finding import Finding, version_finding


def examine() -> Iterator[Finding]:
    """Versions, a real computation on every device, torchvision. Raises if torch does not work."""
    torch = importlib.import_module("torch")  # here, where a failure is a finding

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield version_finding("torch", torch.__version__, "torch", build)
    _compute("cpu")
    yield Finding("device cpu", "ok", "computes", "可以计算")
    yield from _gpus()
    yield _torchvision(torch.__version__)
    n = torch.get_num_threads()
    yield Finding("threads", "ok", f"{n} per worker", f"每个进程 {n}")


def _compute(device: str) -> None:
    """A matrix product and its gradient; raises where the device cannot, or gets it wrong."""
    import torch

    x = torch.full((64, 64), 2.0, device=device, requires_grad=True)
    (x @ x).sum().backward()
    assert x.grad is not None
    if not bool((x.grad == 256).all()):  # 64·2 from each factor
        raise RuntimeError(f"a matrix product on {device} gives a wrong gradient")


def _gpus() -> Iterator[Finding]:
    import torch

    from dualml_torch.environment import why_no_cuda

    if not torch.cuda.is_available():
        if machine.nvidia()[0]:  # a GPU that torch cannot use
            told, _, remedy = why_no_cuda().partition("; ")
            yield Finding(
                "device cuda", "warn", told, f"有 GPU，但 PyTorch 用不了：{told}", remedy, remedy
            )
        return
    for index in range(torch.cuda.device_count()):
        item, name = f"device cuda:{index}", torch.cuda.get_device_name(index)
        try:
            _compute(f"cuda:{index}")
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            yield Finding(
                item,
                "warn",
                f"{name} does not compute: {reason}",
                f"{name} 无法计算：{reason}",
                "install a torch build for this GPU (pytorch.org, Get Started), or --device cpu",
                "安装适合该 GPU 的 torch（pytorch.org，Get Started），或使用 --device cpu",
            )
        else:
            yield Finding(item, "ok", f"{name} computes", f"{name} 可以计算")


def _torchvision(torch_version: str) -> Finding:
    """torchvision carries compiled operators: a build for another torch fails on import."""
    try:
        found = version("torchvision")
    except PackageNotFoundError:
        return Finding(
            "torchvision",
            "warn",
            "not installed; dualml trains without it",
            "未安装；dualml 训练不需要它",
            "pip install 'dualml[torch]'",
            "pip install 'dualml[torch]'",
        )
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        kind = "CPU" if "+cpu" in torch_version else "same CUDA"
        return Finding(
            "torchvision",
            "warn",
            f"{found} is not built for torch {torch_version}: {reason}; dualml trains without it",
            f"{found} 不是为 torch {torch_version} 编译的：{reason}；dualml 训练不需要它",
            f"install torch and torchvision from one index, the {kind} one (pytorch.org, "
            "Get Started)",
            "从同一个索引安装 torch 与 torchvision"
            f"（{'CPU' if kind == 'CPU' else '相同 CUDA'} 版，见 pytorch.org，Get Started）",
        )
    return Finding("torchvision", "ok", f"{found} fits", f"{found} 匹配")
