"""Commands of the programs that start PyTorch ranks. Nothing here imports torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.backend import Launcher
from dualml.launch.route import free_port
from dualml.machine import python


def torchrun(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``torchrun`` for the ranks of this machine."""
    count = f"--nproc-per-node={size}"
    return python("-m", "torch.distributed.run", "--standalone", count, "-m", module, *words)


def launch(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of older scripts: without ``--use-env`` each process gets
    ``--local-rank=N``."""
    count = f"--nproc-per-node={size}"
    return python("-m", "torch.distributed.launch", "--standalone", count, "-m", module, *words)


def spawn(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command that starts ranks by `torch.multiprocessing.spawn`."""
    return python("-m", "dualml_torch.spawn", str(size), module, *words)


def accelerate(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``accelerate launch`` for several processes."""
    count = f"--num_processes={size}"
    launch = ("-m", "accelerate.commands.launch", "--multi_gpu", count, "--main_process_port=0")
    return python(*launch, "-m", module, *words)


def accelerate_cpu(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the documented ``accelerate launch --cpu``, which starts one process whatever the
    number."""
    count = f"--num_processes={size}"
    return python("-m", "accelerate.commands.launch", "--cpu", count, "-m", module, *words)


def deepspeed(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return DeepSpeed's command for one machine with ``size`` ranks, whatever devices it has."""
    return deepspeed_with([f"--num_gpus={size}"], module, words)


def deepspeed_hostfile(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return DeepSpeed's command for several machines, with a hostfile that names only this one."""
    hostfile = Path(words[0]).with_name("hostfile")
    hostfile.write_text(f"localhost slots={size}\n", "utf-8")
    return deepspeed_with([f"--hostfile={hostfile}", "--no_ssh_check"], module, words)


def deepspeed_with(options: Sequence[str], module: str, words: Sequence[str]) -> list[str]:
    """Return the command of DeepSpeed's launcher for the ranks of this machine."""
    where = ("--master_addr=127.0.0.1", f"--master_port={free_port()}")
    runner = ("-m", "deepspeed.launcher.runner", *options, *where)
    return python(*runner, "--module", module, *words)


def horovodrun(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``horovodrun`` with gloo."""
    program = str(Path(sys.executable).with_name("horovodrun"))
    return [program, "-np", str(size), "--gloo", *python("-m", module, *words)]


ACCELERATE = {"package": "accelerate", "install": "pip install 'dualml[accelerate]'"}
DEEPSPEED = {"package": "deepspeed", "install": "pip install 'dualml[deepspeed]'"}
LAUNCHERS = {
    "torchrun": Launcher(torchrun),
    "torch.distributed.launch": Launcher(launch),
    "spawn": Launcher(spawn, rendezvous="auto"),
    "accelerate": Launcher(accelerate, {"ACCELERATE_USE_CPU": "true"}, **ACCELERATE),
    "accelerate-cpu": Launcher(accelerate_cpu, **ACCELERATE),
    "deepspeed": Launcher(deepspeed, **DEEPSPEED),
    "deepspeed-hostfile": Launcher(deepspeed_hostfile, **DEEPSPEED),
    "horovodrun": Launcher(
        horovodrun,
        package="horovod",
        install="bash benchmarks/horovod.sh DIR, see docs/methods.md",
        rendezvous="auto",
    ),
}
