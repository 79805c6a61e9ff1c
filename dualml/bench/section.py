"""What a section of the benchmark is, what it is asked and what it may say."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dualml.backend import BackendInfo

#: The request, in the folder of the results.
JOB = "job.json"
#: What a row may say beside the columns of its table: why it has no figures, or what to know.
REASON = "reason"


class Add(Protocol):
    """Takes a row: column → number, text, or quartiles. It is on disk when this returns.

    ``ok=False`` marks a row that is not as it should be; ``reason`` is a text, or a key of
    ``bench.reason`` with its values.
    """

    def __call__(self, **row: Any) -> None: ...


@dataclass(frozen=True)
class Section:
    """One table.

    Attributes:
        name: of its texts, ``bench.title.NAME`` and ``bench.about.NAME``.
        target: ``"module:function"``, called as ``function(job, add)`` in a process of its own.
        limit_s: seconds after which that process is ended.
        columns: keys of the table, in order.
    """

    name: str
    target: str
    limit_s: float
    columns: Sequence[str]


@dataclass(frozen=True)
class Job:
    """What a section is asked.

    Attributes:
        backend: name of the backend.
        device: as on the command line, never ``auto``.
        folder: for files of its own.
        threads: threads inside one operator on the CPU.
        quick: tiny sizes, which show that it works and not how fast.
        seconds: what it may take at most.
    """

    backend: str
    device: str
    folder: str
    threads: int
    quick: bool
    seconds: float


LAB = Section(
    "lab", "dualml.bench.lab:section", 240, ("arm", "pair", "verdict", "envelopes", "accuracies")
)
SUITE = Section(
    "conformance",
    "dualml.bench.suite:section",
    240,
    ("suite", "passed", "failed", "skipped", "seconds"),
)


def sections(info: BackendInfo) -> list[Section]:
    """Those of every backend, between them those that its package adds in ``bench``."""
    module = f"{info.package}.bench"
    known = importlib.util.find_spec(module) is not None
    own: Sequence[Section] = importlib.import_module(module).SECTIONS if known else ()
    return [LAB, *own, SUITE]
