"""Detection of processes that ``torchrun`` or ``deepspeed`` has started. Nothing here imports
torch."""

from __future__ import annotations

import os

from dualml.backend import ExternalLaunch

DEEPSPEED = ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "RANK", "WORLD_SIZE")


def detect_external_launch() -> ExternalLaunch | None:
    """Return the rank that ``torchrun`` or ``deepspeed`` states in the environment; None without
    one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return detect_deepspeed_launch()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    start = "" if restarts == "0" else f"restart {restarts}"
    return ExternalLaunch("torchrun", "torch", rank, size, start=start)


def detect_deepspeed_launch() -> ExternalLaunch | None:
    """Return the rank that ``deepspeed`` states in the environment: only its launcher sets all of
    these variables unprefixed; None if one is missing."""
    if not {*DEEPSPEED} <= os.environ.keys():
        return None
    return ExternalLaunch(
        "deepspeed", "torch", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    )
