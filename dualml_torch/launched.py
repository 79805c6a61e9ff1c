"""Detection of processes that ``torchrun`` or ``deepspeed`` has started. Nothing here imports
torch."""

from __future__ import annotations

import os

from dualml.backend import Adopted

DEEPSPEED = ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "RANK", "WORLD_SIZE")


def adopted() -> Adopted | None:
    """Return the rank that ``torchrun`` or ``deepspeed`` states in the environment; None without
    one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return by_deepspeed()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    start = "" if restarts == "0" else f"restart {restarts}"
    return Adopted("torchrun", "torch", rank, size, start=start)


def by_deepspeed() -> Adopted | None:
    """Return the rank that ``deepspeed`` states: only its launcher sets all of these variables
    unprefixed."""
    if not {*DEEPSPEED} <= os.environ.keys():
        return None
    return Adopted("deepspeed", "torch", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
