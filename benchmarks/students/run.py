"""Ask `dualml check` about solutions of students, and count what it detects and names rightly.

python benchmarks/students/run.py [--half tuned|held-out|both] [--only LAB/NAME …] [--jobs N]
    [--out FILE]

FORMAT.md describes the cases. A wrong solution is detected if a requirement is not met. It is named
rightly if the first mistake that is named is one of those that say what is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = HERE / "cases"
HALVES = ("tuned", "held-out")
#: Seed of the inputs that are drawn, and seconds after which a check is ended.
SEED, LIMIT = 7, 300
KEYS = frozenset(("truth", "right", "target", "accepted"))


@dataclass(frozen=True)
class Case:
    """A solution: a folder with `case.toml` and the student's files."""

    name: str
    facts: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return CASES / self.name

    @property
    def lab(self) -> str:
        return self.name.partition("/")[0]

    @property
    def half(self) -> str:
        return HALVES[hashlib.sha256(self.name.encode()).digest()[0] % 2]


def read_cases() -> list[Case]:
    """Read all cases, in the order of their names."""
    found = []
    for file in sorted(CASES.glob("*/*/case.toml")):
        name = file.parent.relative_to(CASES).as_posix()
        found.append(Case(name, tomllib.loads(file.read_text("utf-8"))))
    return found


def run_dualml(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of this source tree in a folder."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "dualml", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
    )


def check_case(case: Case) -> dict[str, Any]:
    """Judge a case in a workspace of its own, and return its row."""
    with tempfile.TemporaryDirectory(prefix="dualml-student-") as parent:
        made = run_dualml(["new", case.lab, "w", "--backend", "both"], Path(parent))
        if made.returncode:
            raise SystemExit(made.stderr)
        files = [path for path in case.folder.iterdir() if path.suffix == ".py"]
        for path in files:
            shutil.copy(path, Path(parent) / "w")
        begin = time.perf_counter()
        words = [
            "check",
            *case.facts["target"].split(),
            "--json",
            "--hints",
            "3",
            "--seed",
            str(SEED),
        ]
        checked = run_dualml(words, Path(parent) / "w")
        seconds = time.perf_counter() - begin
    tasks = {path.name for path in files}
    return {
        "name": case.name,
        "half": case.half,
        "right": case.facts["right"],
        "seconds": round(seconds, 1),
        **grade(case, checked.stdout, tasks),
    }


def grade(case: Case, printed: str, files: set[str]) -> dict[str, Any]:
    """Return what the judge found in the student's files: ``detected``, the mistakes ``said``, in
    order, and whether the first of them is true (``named``: right, wrong or no).

    Args:
        printed: JSON of `dualml check`; anything else is a stumble.
        files: names of the student's files; other files of the workspace are not written yet.
    """
    try:
        judged = [one for one in json.loads(printed)["files"] if one["file"] in files]
    except (ValueError, KeyError):
        return {"detected": False, "said": [], "named": "no", "stumbled": True}
    said = [
        mistake["name"]
        for one in judged
        for requirement in one["requirements"]
        for mistake in requirement["mistakes"]
    ]
    said = list(dict.fromkeys(said))
    named = "no" if not said else "right" if said[0] in case.facts["accepted"] else "wrong"
    detected = not all(one["met"] for one in judged)
    return {"detected": detected, "said": said, "named": named, "stumbled": not judged}


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each half and lab, and for each half."""
    for half in HALVES:
        labs = sorted({row["name"].partition("/")[0] for row in rows})
        for lab in [*labs, ""]:
            chosen = [r for r in rows if r["half"] == half and r["name"].startswith(lab)]
            if not chosen:
                continue
            wrong = [row for row in chosen if not row["right"]]
            right = [row for row in chosen if row["right"]]
            counts = [sum(row["named"] == kind for row in wrong) for kind in ("right", "wrong")]
            accepted = sum(not row["detected"] for row in right)
            yield (
                f"{half} {lab or 'all'}: {sum(row['detected'] for row in wrong)} of {len(wrong)} "
                f"wrong ones detected, {counts[0]} named rightly, {counts[1]} wrongly; {accepted} "
                f"of {len(right)} right ones accepted; "
                f"median {statistics.median(row['seconds'] for row in chosen):.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--only", nargs="*", help="names or patterns, as lab2/t_*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [
        case
        for case in read_cases()
        if given.half in (case.half, "both")
        and (not given.only or any(fnmatch(case.name, one) for one in given.only))
    ]
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(check_case, chosen):
            rows.append(row)
            state = "detected" if row["detected"] else "accepted"
            print(
                f"{row['name']:44} {state:9} {row['named']:6} {row['seconds']:5.1f} s  "
                f"{' '.join(row['said'])}",
                flush=True,
            )
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    main()
