"""Read the recordings of this package, and unpack them as run folders.

``recordings/NAME.zip`` holds a run folder without its arrays below ``run/``, and its report as
``LANG.html``; ``recordings/port.zip`` a comparison of two models: what the command printed as
``LANG.txt``, the patch as ``port.diff``, and the two files. ``facts.json`` in each says how it was
made.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO

from dualml.common.files import write_bytes
from dualml.common.words import LANGUAGES

#: Recorded labs in the order of the course, and the name of the comparison.
LABS = ("lab1", "lab2", "lab3", "lab4", "rnn_ps", "methods", "memory")
PORT = "port"
#: Name of the report in one language, beside the run folder's files.
REPORT = "report.{lang}.html"


@dataclass(frozen=True)
class RecordingFacts:
    """The provenance of a recording.

    Attributes:
        command: the command to repeat it.
        date: ISO date of the run.
        machine: processor, cores and memory.
        versions: versions of dualml and the frameworks.
    """

    command: str
    date: str
    machine: str
    versions: str


@dataclass(frozen=True)
class RecordedPort:
    """A recorded comparison of a model with its port.

    Attributes:
        answers: language → what the command printed, without the patch.
        patch: unified diff of the port with which both are equal.
        sources: file name → text of the two models.
    """

    facts: RecordingFacts
    answers: Mapping[str, str]
    patch: str
    sources: Mapping[str, str]


def read_facts(name: str) -> RecordingFacts:
    """Read how the recording of a lab, or of the comparison (`PORT`), was made."""
    with open_recording(name) as file, zipfile.ZipFile(file) as packed:
        return RecordingFacts(**json.loads(packed.read("facts.json")))


def read_port() -> RecordedPort:
    """Read the recorded comparison of a model with its port."""
    with open_recording(PORT) as file, zipfile.ZipFile(file) as packed:
        texts = {name: packed.read(name).decode() for name in packed.namelist()}
    return RecordedPort(
        RecordingFacts(**json.loads(texts["facts.json"])),
        {lang: texts[f"{lang}.txt"] for lang in LANGUAGES},
        texts["port.diff"],
        {name: text for name, text in texts.items() if name.endswith(".py")},
    )


def read_report(name: str, lang: str) -> bytes:
    """Read the recorded report of a lab in a language."""
    with open_recording(name) as file, zipfile.ZipFile(file) as packed:
        return packed.read(f"{lang}.html")


def unpack_runs(folder: Path) -> None:
    """Unpack the run folder of every lab into ``folder``, with its report in every language."""
    for name in LABS:
        with open_recording(name) as file, zipfile.ZipFile(file) as packed:
            for member in packed.namelist():
                head, _, inside = member.partition("/")
                target = folder / name / (inside if head == "run" else f"report.{member}")
                if head == "run" or member.endswith(".html"):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_bytes(target, packed.read(member))


def open_recording(name: str) -> IO[bytes]:
    """Open the zip archive of a recording for reading; ``name`` is one of `LABS`, or `PORT`."""
    return (files("dualml.interface.demo") / "recordings" / f"{name}.zip").open("rb")
