"""Run the probes of both frameworks and measure every catalogue entry on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dualml.backend import BackendInfo, backends
from dualml.common.errors import TrialError, Unsupported
from dualml.common.files import read_json, write_json
from dualml.common.machine import python_argv
from dualml.launch.process import Launch
from dualml.launch.ranks import run_ranks
from dualml.launch.supervise import describe_exit, supervise
from dualml.parity.diffs import VARIANTS
from dualml.parity.diffs.compare import EntryResult, Probed, judge_entry
from dualml.parity.diffs.entry import DifferenceEntry

#: The two frameworks of the catalogue, and where their probes run.
SIDES, DEVICE = ("torch", "mindspore"), "cpu"
#: Seconds without output that one probe may take, and limit for all probes of a backend.
SILENCE, LIMIT = 60.0, 600.0


def frameworks() -> dict[str, BackendInfo]:
    """Return both backends of the catalogue by name, installed or not."""
    known = backends()
    return {name: known[name] for name in SIDES}


def versions(sides: Mapping[str, BackendInfo]) -> dict[str, str | None]:
    """Return each framework's installed version without importing it; None if not installed, ``?``
    if unknown."""
    from importlib.metadata import PackageNotFoundError, version

    installed: dict[str, str | None] = {}
    for name, info in sides.items():
        try:
            installed[name] = version(info.framework) if info.installed() else None
        except PackageNotFoundError:  # built from source, or by a vendor under another name
            installed[name] = "?"
    return installed


def measure_entries(
    entries: Sequence[DifferenceEntry],
    sides: Mapping[str, BackendInfo],
    progress: Callable[[str], None] = lambda text: None,
) -> list[EntryResult]:
    """Run the probes of ``entries``, each framework in its own processes, and compare them.

    Entries are measured only with both frameworks; otherwise their results are empty.

    Args:
        sides: the backends ``torch`` and ``mindspore``, as far as they are installed.
        progress: called with a short text about what is running.
    """
    results = {name: run_probes(entries, info, progress) for name, info in sides.items()}
    return [
        judge_entry(entry, {name: side[entry.name] for name, side in results.items()})
        for entry in entries
    ]


def run_probes(
    entries: Sequence[DifferenceEntry], info: BackendInfo, progress: Callable[[str], None]
) -> dict[str, dict[str, Probed]]:
    """Run one framework's probes; return entry name → variant (``plain``, ``equal``) → outcome, as
    `read_outcome` returns it."""
    with tempfile.TemporaryDirectory(prefix="dualml-diffs-") as temporary:
        folder = Path(temporary)
        for ranks in sorted({entry.ranks for entry in entries}):
            left = [entry for entry in entries if entry.ranks == ranks]
            while left:
                reason = attempt(info, left, ranks, folder, progress)
                left = [entry for entry in left if not (folder / f"{entry.name}.done").exists()]
                # The first remaining probe terminated its process; the others get a new one. If
                # not even the first began, the framework does not start, and none of them will.
                count = 1 if left and (folder / f"{left[0].name}.begun").exists() else len(left)
                for entry in left[:count]:
                    write_json(folder / f"{entry.name}.died.json", {"died": reason})
                left = left[count:]
        return {
            entry.name: {variant: read_outcome(folder, entry.name, variant) for variant in VARIANTS}
            for entry in entries
        }


def attempt(
    info: BackendInfo,
    entries: Sequence[DifferenceEntry],
    ranks: int,
    folder: Path,
    progress: Callable[[str], None],
) -> str:
    """Run as many probes as one start of the framework completes.

    Returns:
        Why the run ended early; empty if it did not. Outcomes are files in ``folder``.
    """
    job = {
        "package": f"{info.package}.parity.diffs",
        "folder": str(folder),
        "device": DEVICE,
        "probes": [(e.name, e.topic, e.function) for e in entries],
    }
    if ranks > 1:
        progress(f"{info.name} ({ranks} ranks)")
        try:
            run_ranks(
                info.name,
                ranks,
                "dualml.parity.diffs.worker:measure_on_ranks",
                job,
                timeout=20.0,
                limit=SILENCE * 2,
            )
        except (TrialError, Unsupported) as error:
            return str(error)
        return ""
    write_json(folder / "job.json", job)
    command = python_argv("-m", "dualml.parity.diffs.worker", str(folder))
    ended = supervise(
        [Launch(command, info.environ(1), folder / "log", info.preload)],
        lambda rank, event: progress(f"{info.name}: {event.get('phase', '')}"),
        limit=LIMIT,
        silence=SILENCE,
    )
    reason = ended.reason or ended.results.get(0, {}).get("reason")
    return str(reason or (describe_exit(ended.code) if ended.code else ""))


def read_outcome(folder: Path, name: str, variant: str) -> Probed:
    """Return the outcome of one probe that a worker left in ``folder``: (``arrays``, name → array),
    (``raised``, text) or (``died``, reason).

    An entry without an ``equal`` probe has the outcome of its ``plain`` one.
    """
    arrays, raised = folder / f"{name}.{variant}.npz", folder / f"{name}.{variant}.json"
    ended = folder / f"{name}.died.json"
    if arrays.exists():
        with np.load(arrays, allow_pickle=False) as file:
            return "arrays", {key: file[key] for key in file.files}
    if raised.exists():
        return "raised", read_json(raised)["raised"]
    if variant == "equal" and not ended.exists():  # no equal probe: use the plain one
        return read_outcome(folder, name, "plain")
    return "died", read_json(ended)["died"]
