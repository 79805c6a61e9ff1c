"""The interface of a benchmark section: its definition, its request, and the rows it reports."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dualml.backend import BackendInfo

#: File of the request, in the folder of the results.
JOB = "job.json"
#: Key of a row for a reason: why it has no figures, or what a reader has to know.
REASON = "reason"


class AddRow(Protocol):
    """Callback that saves a row: column → number, text, or quartiles. It is on disk on return.

    ``ok=False`` marks a row that is not as it should be; ``reason`` is a text, or a key of
    ``bench.reason`` with its values.
    """

    def __call__(self, **row: Any) -> None: ...


@dataclass(frozen=True)
class BenchSection:
    """One section of the benchmark, with one table.

    Attributes:
        name: its name, also in the messages ``bench.title.NAME`` and ``bench.about.NAME``.
        target: ``"module:function"``, called as ``function(job, add)`` in a separate process.
        limit_s: seconds after which that process is killed.
        columns: keys of the table's columns, in order.
    """

    name: str
    target: str
    limit_s: float
    columns: Sequence[str]


@dataclass(frozen=True)
class BenchJob:
    """The request to a section.

    Attributes:
        backend: name of the backend.
        device: the device as on the command line; ``auto`` is replaced before a section gets it.
        folder: folder for the section's files.
        threads: threads inside one operator on the CPU.
        quick: use tiny sizes, which show that it works but not how fast.
        seconds: time limit: of the section, or of all together in the request to `run_sections`.
    """

    backend: str
    device: str
    folder: str
    threads: int
    quick: bool
    seconds: float


LAB = BenchSection(
    "lab",
    "dualml.interface.bench.lab:section",
    240,
    ("arm", "pair", "verdict", "envelopes", "accuracies"),
)
SUITE = BenchSection(
    "conformance",
    "dualml.interface.bench.suite:section",
    240,
    ("suite", "passed", "failed", "skipped", "seconds"),
)


def list_sections(info: BackendInfo) -> list[BenchSection]:
    """Return the sections of a backend: the common ones, and those of its module ``bench``."""
    module = f"{info.package}.bench"
    known = importlib.util.find_spec(module) is not None
    own: Sequence[BenchSection] = importlib.import_module(module).SECTIONS if known else ()
    return [LAB, *own, SUITE]
