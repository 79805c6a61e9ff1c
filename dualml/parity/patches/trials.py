"""Run a port from a patched copy, and compare it with the original's trace again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.machine import usable_cores
from dualml.parity.models.activity import begin_phase
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.resources import SIZE
from dualml.parity.models.side_processes import (
    WORKER,
    run_side,
    run_workers,
    search_causes,
)
from dualml.parity.models.sides import ResolvedSide
from dualml.parity.models.trace import Trace, read_trace
from dualml.parity.patches.copies import PatchedCopy, link
from dualml.parity.patches.roles import Letter

#: Largest number of trials at once.
MAX_TRIALS = 4
#: What a port's worker reads besides its job: the original's trace, weights and settings.
SHARED_FILES = ("a", "weights", "inputs.npz", "pairs", "a.settings.json")
#: What both workers read besides their job.
BATCH_FILES = ("inputs.npz", "pairs")
#: File → its content in a patched copy.
Texts = Mapping[Path, bytes]


@dataclass
class Trials:
    """Runs trials of patches of one side of a comparison, the port.

    Attributes:
        folder: folder of the comparison, with both traces.
        job: job of the comparison.
        sides: both sides.
        home: folder for the trials.
        port: letter of the side that is patched.
        count: number of trials so far.
    """

    folder: Path
    job: Mapping[str, Any]
    sides: Sequence[ResolvedSide]
    home: Path
    port: Letter = "b"
    count: int = field(default=0, init=False)

    @cached_property
    def first_trace(self) -> Trace:
        """The trace of the first side, which no patch of the second changes."""
        return read_trace(self.folder / "a")

    def prepare(self, texts: Texts) -> Path:
        """Make the folder of the next trial, with links to the batch and the files of the original,
        the patched sources ``texts`` (file → content) and a job; return it."""
        self.count += 1
        begin_phase("patch", self.count)
        folder = self.home / f"trial-{self.count}"
        folder.mkdir(parents=True)
        for entry in self.folder.iterdir():
            shared = entry.name in SHARED_FILES or entry.name.startswith(("a.", "a-"))
            if entry.name in BATCH_FILES or (shared and self.port == "b"):
                link(entry, folder / entry.name)
        copies = PatchedCopy(folder / "source", texts)
        write_json(folder / "job.json", copies.adapt_job(self.job, self.port))
        write_json(folder / SIZE, {"together": True, "threads": 0})
        return folder

    def compare(self, folder: Path) -> ModelComparison | None:
        """Run the port in the folder of a trial and compare it with the original; None if it cannot
        be run. If the port is the first side, both sides are run, because the second begins with
        its weights."""
        if self.port == "a":
            return self.compare_both(folder)
        try:
            run_side(WORKER, folder, "b", self.sides[1], self.job["timeout"])
            labels = self.sides[0].label, self.sides[1].label
            settings = JudgingSettings(self.job["margin"], self.job["map"], labels)
            return judge_traces(self.first_trace, read_trace(folder / "b"), settings)
        except UserError:
            return None

    def compare_both(self, folder: Path) -> ModelComparison | None:
        """Run both sides in the folder of a trial and compare them; None if they cannot be run."""
        with np.load(folder / "inputs.npz", allow_pickle=False) as file:
            arrays = [file[name] for name in sorted(file.files)]
        (folder / "inputs.npz").unlink()  # a link, which the workers' job would write through
        try:
            run_workers(folder, read_json(folder / "job.json"), self.sides, arrays)
            labels = self.sides[0].label, self.sides[1].label
            settings = JudgingSettings(self.job["margin"], self.job["map"], labels)
            return judge_traces(read_trace(folder / "a"), read_trace(folder / "b"), settings)
        except UserError:
            return None

    def compare_all(self, several: Sequence[Texts]) -> list[tuple[Path, ModelComparison | None]]:
        """Try several patches (file → content), `width` at once; return for each, in order, its
        folder and its comparison, or None if it cannot be run."""
        folders = [self.prepare(texts) for texts in several]
        with ThreadPoolExecutor(self.width) as pool:
            return list(zip(folders, pool.map(self.compare, folders), strict=True))

    @property
    def width(self) -> int:
        """Number of trials at once: as many as there are usable cores, at most `MAX_TRIALS`."""
        return max(1, min(MAX_TRIALS, usable_cores()))

    def explain(self, folder: Path, seconds: float) -> dict[str, Any] | None:
        """Search for causes of what is still different in the folder of a trial, for at most
        ``seconds``; return the explanation, or None if the search failed."""
        own = self.job if self.port == "b" else read_json(folder / "job.json")
        job = {**own, "budget": min(self.job["budget"], seconds)}
        write_json(folder / "job.json", job)
        return search_causes(folder, self.sides[0], job["timeout"], job["budget"])

    @staticmethod
    def discard(folder: Path) -> None:
        """Delete the folder of a trial; errors are ignored."""
        shutil.rmtree(folder, ignore_errors=True)
