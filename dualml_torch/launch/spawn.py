"""Start ranks by `torch.multiprocessing.spawn`: ``python -m dualml_torch.launch.spawn SIZE MODULE
WORDS``."""

from __future__ import annotations

import os
import runpy
import sys

import torch.multiprocessing


def run_rank(number: int, size: int, module: str, words: list[str]) -> None:
    """Run ``module`` with the arguments ``words`` in this process as rank ``number``, from 0, of
    ``size``, which it puts into the environment."""
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(size)}
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    count, name, *rest = sys.argv[1:]
    torch.multiprocessing.spawn(run_rank, (int(count), name, rest), nprocs=int(count))
