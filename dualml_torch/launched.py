"""Whether ``torchrun`` has started this process. Nothing here imports torch."""

from __future__ import annotations

import os

from dualml.backend import Adopted


def adopted() -> Adopted | None:
    """What ``torchrun`` says of this process in its environment."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    start = "" if restarts == "0" else f"restart {restarts}"
    return Adopted("torchrun", "torch", rank, size, start=start)
