"""Run every benchmark with one command, each framework in a separate process.

python benchmarks/run.py [--quick] [--only SECTION] [--json] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results import strange, write
from rich.console import Console
from tables import machine, show

from dualml.backend import backends

#: Section → programs of this folder: file, arguments, and the backend it needs.
SECTIONS: dict[str, list[tuple[str, list[str], str | None]]] = {
    "training": [
        ("training_torch.py", [], "torch"),
        ("training_mindspore.py", [], "mindspore"),
        ("variants_mindspore.py", [], "mindspore"),
    ],
    "models": [("models_torch.py", [], "torch")],
    "gpt": [
        ("models_torch.py", ["--gpt"], "torch"),
        ("variants_mindspore.py", ["--gpt"], "mindspore"),
    ],
    "sharding": [("sharding.py", [], "torch")],
    "methods": [
        ("methods.py", [], "torch"),
        ("methods_mindspore.py", [], "mindspore"),
    ],
    "operators": [("operators_mindspore.py", [], "mindspore")],
    "optimizer": [
        ("optim_step.py", ["--backend", "torch", "--json"], "torch"),
        ("optim_step.py", ["--backend", "mindspore", "--json"], "mindspore"),
    ],
    "isa": [("isa.py", [], "mindspore")],
    "reference": [("reference.py", [], "torch")],
    "startup": [("startup.py", [], None)],
    "memory": [
        ("memory.py", ["--backend", "torch"], "torch"),
        ("memory.py", ["--backend", "mindspore"], "mindspore"),
    ],
    **{
        name: [(f"{name}.py", ["--backend", b], b) for b in ("torch", "mindspore")]
        for name in ("communication", "parallel", "efficiency", "launching", "split", "attention")
    },
    "busy": [
        ("busy.py", ["--backend", backend, "--json"], backend) for backend in ("torch", "mindspore")
    ],
    "partition": [
        ("partition.py", [], None),
        ("partition.py", ["--backend", "torch"], "torch"),
        ("partition.py", ["--backend", "mindspore"], "mindspore"),
    ],
}
#: Programs that get two cores: those with several ranks, loader workers or two threads, and small
#: MindSpore kernels, whose other threads yield to one another on a single core.
TWO_CORES = (
    "models_torch.py",
    "methods.py",
    "methods_mindspore.py",
    "communication.py",
    "parallel.py",
    "efficiency.py",
    "launching.py",
    "partition.py",
    "split.py",
    "attention.py",
    "busy.py",
    "sharding.py",
    "variants_mindspore.py",
)
RANKS = 2
WITHOUT_QUICK = ("memory.py",)  # an epoch is an epoch
LIMIT_S = 1800  # of one program; the longest takes some minutes


def measure(file: str, arguments: list[str], backend: str | None, threads: int) -> list[Any]:
    """Run a program and return the rows it prints on its last line.

    Raises:
        RuntimeError: it failed (with the end of its output), or took longer than `LIMIT_S`.
    """
    # isa.py sets its own variables for its processes: here they would look like the user's wish.
    more = backends()[backend].environ(threads) if backend and file != "isa.py" else {}
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), **more}
    command = [sys.executable, str(Path(__file__).with_name(file)), *arguments]
    try:
        made = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{file} took longer than {LIMIT_S} s and was ended") from None
    if made.returncode:
        raise RuntimeError(f"{file} ended with {made.returncode}: {made.stderr.strip()[-800:]}")
    found: list[Any] = json.loads(made.stdout.strip().splitlines()[-1])
    return found


def prepare(threads: int) -> None:
    """Measure MindSpore's choice of instructions on all cores, once per machine, and cache it."""
    for info in backends().values():
        if info.installed():
            info.environ(threads)


def confine(cores: int, usable: Sequence[int]) -> None:
    """Bind this process and its children to so many usable cores, if the system supports it."""
    if usable:
        os.sched_setaffinity(0, usable[-cores:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="repeatable")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores; default 1")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    parser.add_argument(
        "--markdown",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="repeatable; with --only the other tables of the page stay",
    )
    asked = parser.parse_args()
    for path in asked.markdown if asked.only else ():
        if path.exists() and (other := strange(path.read_text("utf-8"), machine(1))):
            parser.error(f"{path} was measured elsewhere, not with {other[0]}: leave out --only")
    prepare(asked.threads)
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    width = None if sys.stdout.isatty() else 140
    console, failed, rows = Console(stderr=asked.json, width=width), False, []
    for section in asked.only or SECTIONS:
        for file, arguments, backend in SECTIONS[section]:
            name = " ".join([file, *arguments])
            if backend and not backends()[backend].installed():
                console.print(f"{name}: left out, {backend} is not installed", highlight=False)
                continue
            confine(asked.threads * (RANKS if file in TWO_CORES else 1), usable)
            quick = ["--quick"] if asked.quick and file not in WITHOUT_QUICK else []
            try:
                with console.status(name):
                    rows += measure(file, arguments + quick, backend, asked.threads)
            except RuntimeError as error:
                failed = True
                console.print(f"{error}", style="red", markup=False)
    confine(len(usable), usable)
    facts = machine(asked.threads)
    if asked.json:
        print(json.dumps({"machine": facts, "rows": rows}, indent=1, allow_nan=False))
    else:
        show(rows, facts, console)
    for path in asked.markdown:
        write(path, rows, facts, whole=not asked.only)
    sys.exit(failed)


if __name__ == "__main__":
    main()
