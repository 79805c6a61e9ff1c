"""Find the patch of a comparison: choose its port, search, and describe what was found."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dualml.common.files import read_json
from dualml.common.json_types import JsonObject
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.sides import ResolvedSide
from dualml.parity.patches.roles import find_port, model_file
from dualml.parity.patches.search import PatchSearch
from dualml.parity.patches.trials import Trials

#: Seconds for the search of a patch.
PATCH_S = 150.0


def find_patch(
    folder: Path, sides: Sequence[ResolvedSide], found: ModelComparison, seconds: float = PATCH_S
) -> JsonObject:
    """Search for a patch of the port, see `find_port`, that makes a comparison equal.

    Args:
        folder: folder of the comparison, with both traces.
        seconds: time for the search.

    Returns:
        ``verdict``: that of the comparison with the patch, ``none`` without any patch; ``reason``:
            message key of why it is not ``equal``; ``file``: the file that the reason is about;
            ``diff``: the unified diff; ``folder``: the folder from which it is applied, empty for
            the working folder; ``map``: always empty here; ``tried``: number of trials; ``left``:
            the first difference that is left, or None. Where the port is the first side, also
            ``side``: its label; ``port``, ``original``: names of both files.
    """
    with tempfile.TemporaryDirectory(prefix="dualml-patch-") as temporary:
        job = read_json(folder / "job.json")
        port = find_port(job)
        trials = Trials(folder, job, sides, Path(temporary).resolve(), port)
        search = PatchSearch(trials, time.monotonic() + seconds)
        search.undo_causes(found)
        row = search.describe()
        if port == "b":
            return row
        names = [Path(model_file(job["sides"][letter]["model"])).name for letter in "ab"]
        return {**row, "side": sides[0].label, "port": names[0], "original": names[1]}
