"""Run one section in its own process: ``python -m dualml.interface.bench.work FOLDER NAME TARGET``.

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
from dualml.common.errors import TrialError, Unsupported, UserError
from dualml.common.files import nonfinite_to_none, read_json, write_json
from dualml.interface.bench.section import JOB, REASON, BenchJob

MACHINE = "machine"
#: Maximum characters of an error in a table.
MAX_ERROR_CHARS = 300


def error_reason(error: BaseException) -> str:
    """Describe an error in one line of about 300 characters at most, with its type unless it is an
    error class of dualml."""
    line = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    ours = isinstance(error, UserError | TrialError | Unsupported)
    return line if ours and line else f"{type(error).__name__}: {line}".rstrip(": ")


def run_target(folder: Path, name: str, target: str = "") -> int:
    """Run a section, or write the facts about the device if ``name`` is `MACHINE`; return the exit
    code, 1 after an error, which is printed and, of a section, also its last row."""
    job = BenchJob(**read_json(folder / JOB))
    try:
        if name == MACHINE:
            facts = backends()[job.backend].create(job.device, job.threads).environment()
            write_json(folder / f"{MACHINE}.json", dict(facts))
            return 0
        with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:

            def add(**row: Any) -> None:
                print(json.dumps(nonfinite_to_none(row), ensure_ascii=False), file=file, flush=True)

            module, _, function = target.partition(":")
            try:
                getattr(importlib.import_module(module), function)(job, add)
            except Exception as error:
                add(**{REASON: error_reason(error), "ok": False})
                raise
    except Exception as error:
        traceback.print_exc()
        print(error_reason(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_target(Path(sys.argv[1]), *sys.argv[2:]))
