"""Run one section in its own process: ``python -m dualml.bench.work FOLDER NAME TARGET``.

``machine`` without a target writes the facts about the device to a file.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from dualml.backend import backends
from dualml.bench.section import JOB, REASON, Job
from dualml.errors import TrialError, Unsupported, UserError
from dualml.files import finite, read_json, write_json

MACHINE = "machine"
#: Maximum characters of an error in a table.
MOST = 300


def reason(error: BaseException) -> str:
    """Describe an error in one line, with its type unless it is an error class of dualml."""
    line = " ".join(str(error).split())[:MOST]
    ours = isinstance(error, UserError | TrialError | Unsupported)
    return line if ours and line else f"{type(error).__name__}: {line}".rstrip(": ")


def work(folder: Path, name: str, target: str = "") -> int:
    """Run a section, or write the facts about the device; return the exit code."""
    job = Job(**read_json(folder / JOB))
    try:
        if name == MACHINE:
            facts = backends()[job.backend].create(job.device, job.threads).environment()
            write_json(folder / f"{MACHINE}.json", dict(facts))
            return 0
        with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:

            def add(**row: Any) -> None:
                print(json.dumps(finite(row), ensure_ascii=False), file=file, flush=True)

            module, _, function = target.partition(":")
            try:
                getattr(importlib.import_module(module), function)(job, add)
            except Exception as error:
                add(**{REASON: reason(error), "ok": False})
                raise
    except Exception as error:
        traceback.print_exc()
        print(reason(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(work(Path(sys.argv[1]), *sys.argv[2:]))
