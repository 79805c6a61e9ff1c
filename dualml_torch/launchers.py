"""Programs that start ranks of PyTorch, as their users call them. Nothing here imports torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.backend import Launcher
from dualml.machine import python


def torchrun(size: int, module: str, words: Sequence[str]) -> list[str]:
    count = f"--nproc-per-node={size}"
    return python("-m", "torch.distributed.run", "--standalone", count, "-m", module, *words)


def spawn(size: int, module: str, words: Sequence[str]) -> list[str]:
    return python("-m", "dualml_torch.spawn", str(size), module, *words)


def accelerate(size: int, module: str, words: Sequence[str]) -> list[str]:
    count = f"--num_processes={size}"
    launch = ("-m", "accelerate.commands.launch", "--multi_gpu", count, "--main_process_port=0")
    return python(*launch, "-m", module, *words)


def accelerate_cpu(size: int, module: str, words: Sequence[str]) -> list[str]:
    """As its help says it; it starts one process, whatever the number."""
    count = f"--num_processes={size}"
    return python("-m", "accelerate.commands.launch", "--cpu", count, "-m", module, *words)


def horovodrun(size: int, module: str, words: Sequence[str]) -> list[str]:
    program = str(Path(sys.executable).with_name("horovodrun"))
    return [program, "-np", str(size), "--gloo", *python("-m", module, *words)]


ACCELERATE = {"package": "accelerate", "install": "pip install 'dualml[accelerate]'"}
LAUNCHERS = {
    "torchrun": Launcher(torchrun),
    "spawn": Launcher(spawn, rendezvous="auto"),
    "accelerate": Launcher(accelerate, {"ACCELERATE_USE_CPU": "true"}, **ACCELERATE),
    "accelerate-cpu": Launcher(accelerate_cpu, **ACCELERATE),
    "horovodrun": Launcher(
        horovodrun,
        package="horovod",
        install="bash benchmarks/horovod.sh DIR, see docs/methods.md",
        rendezvous="auto",
    ),
}
