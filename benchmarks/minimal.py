"""The least a group of ranks does, with dualml: join, add up one number, say so, end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def once(comm: Any, argument: dict[str, str]) -> None:
    total = comm.all_reduce(comm.tensor(np.ones(1, np.float32)))
    assert comm.numpy(total)[0] == comm.size
    Path(argument["marks"], str(comm.rank)).touch()
