"""Commands of the programs that start PyTorch ranks. Nothing here imports torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.backend import Launcher
from dualml.common.machine import python_argv
from dualml.launch.route import free_port


def torchrun_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``torchrun`` for ``size`` ranks of a module on this machine; ``words``
    are the module's arguments."""
    count = f"--nproc-per-node={size}"
    return python_argv("-m", "torch.distributed.run", "--standalone", count, "-m", module, *words)


def torch_launch_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of older scripts, `torch.distributed.launch`: without ``--use-env`` each
    process gets ``--local-rank=N`` as a further argument."""
    count = f"--nproc-per-node={size}"
    return python_argv(
        "-m", "torch.distributed.launch", "--standalone", count, "-m", module, *words
    )


def spawn_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command that starts ``size`` ranks of a module by `torch.multiprocessing.spawn`;
    ``words`` are the module's arguments."""
    return python_argv("-m", "dualml_torch.launch.spawn", str(size), module, *words)


def accelerate_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``accelerate launch --multi_gpu`` for ``size`` processes of a module on
    this machine."""
    count = f"--num_processes={size}"
    launch = ("-m", "accelerate.commands.launch", "--multi_gpu", count, "--main_process_port=0")
    return python_argv(*launch, "-m", module, *words)


def accelerate_cpu_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the documented command ``accelerate launch --cpu``, which starts one process whatever
    ``size`` is."""
    count = f"--num_processes={size}"
    return python_argv("-m", "accelerate.commands.launch", "--cpu", count, "-m", module, *words)


def deepspeed_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return DeepSpeed's command for one machine with ``size`` ranks, whatever devices it has."""
    return deepspeed_runner_command([f"--num_gpus={size}"], module, words)


def deepspeed_hostfile_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Write a hostfile that names only this machine beside the file ``words[0]``; return
    DeepSpeed's command for several machines with it."""
    hostfile = Path(words[0]).with_name("hostfile")
    hostfile.write_text(f"localhost slots={size}\n", "utf-8")
    return deepspeed_runner_command([f"--hostfile={hostfile}", "--no_ssh_check"], module, words)


def deepspeed_runner_command(
    options: Sequence[str], module: str, words: Sequence[str]
) -> list[str]:
    """Return the command of DeepSpeed's launcher with these options for the ranks of this machine,
    which meet at a free port."""
    where = ("--master_addr=127.0.0.1", f"--master_port={free_port()}")
    runner = ("-m", "deepspeed.launcher.runner", *options, *where)
    return python_argv(*runner, "--module", module, *words)


def horovodrun_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command that starts ``size`` ranks of a module by ``horovodrun`` with gloo."""
    program = str(Path(sys.executable).with_name("horovodrun"))
    return [program, "-np", str(size), "--gloo", *python_argv("-m", module, *words)]


ACCELERATE = {"package": "accelerate", "install": "pip install 'dualml[accelerate]'"}
DEEPSPEED = {"package": "deepspeed", "install": "pip install 'dualml[deepspeed]'"}
LAUNCHERS = {
    "torchrun": Launcher(torchrun_command),
    "torch.distributed.launch": Launcher(torch_launch_command),
    "spawn": Launcher(spawn_command, rendezvous="auto"),
    "accelerate": Launcher(accelerate_command, {"ACCELERATE_USE_CPU": "true"}, **ACCELERATE),
    "accelerate-cpu": Launcher(accelerate_cpu_command, **ACCELERATE),
    "deepspeed": Launcher(deepspeed_command, **DEEPSPEED),
    "deepspeed-hostfile": Launcher(deepspeed_hostfile_command, **DEEPSPEED),
    "horovodrun": Launcher(
        horovodrun_command,
        package="horovod",
        install="bash benchmarks/horovod.sh DIR, see docs/methods.md",
        rendezvous="auto",
    ),
}
