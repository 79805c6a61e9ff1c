"""What is asked of a kill: is it named, is anything left, are the bytes those of a whole run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What depends on the clock, the machine, or on how often a run was started.
TIMES = (
    "train_s", "compile_s", "spent", "step_s", "sent_bytes", "environment", "peak_memory_mb",
    "device_memory",
)  # fmt: skip
SAME = ("weights.safetensors", "trace.safetensors", "envelope.json")
#: Until a kill is named, at most.
NAMED_S = 30.0
#: A way to go on, in a last line.
REMEDY = re.compile(r"dualml (run --resume|resume \d)|again")


def lost(victim: str) -> tuple[int, ...]:
    """The ranks that a kill takes away; both ends of a cable lose the other one."""
    if victim == "cable":
        return (0, 1)
    if victim in ("worker 0", "node a"):
        return (0,)
    return (1,)


def tells(line: str, ranks: Sequence[int], end: str) -> bool:
    """Whether a line says who is lost."""
    if end == "job" and re.search("its process was gone|Nodes required for job are DOWN", line):
        return True  # in the words of the queue, or of Slurm, which takes the job up again itself
    return any(re.search(rf"\brank {rank}\b", line) for rank in ranks)


def records(path: Path) -> list[dict[str, Any]]:
    """Without what the clock says."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def alike(whole: Path, other: Path, backend: str) -> list[str]:
    """The files of two runs of one plan that differ, or are missing in one."""
    found = []
    for place in sorted(whole.glob(f"trials/*/{backend}/seed0")):
        there = other / place.relative_to(whole)
        for path in sorted(place.iterdir()):
            if path.name.endswith(".usage.jsonl"):  # what ranks used while they computed
                continue
            twin, name = there / path.name, str(path.relative_to(whole))
            if not twin.exists():
                found.append(f"{name}: missing")
            elif path.name in SAME:
                found += [name] if path.read_bytes() != twin.read_bytes() else []
            elif path.suffix == ".jsonl":
                found += [name] if records(path) != records(twin) else []
            elif path.name == "result.json":
                one, two = (json.loads(p.read_text("utf-8")) for p in (path, twin))
                keys = (one.keys() | two.keys()) - set(TIMES)
                found += [f"{name}: {key}" for key in sorted(keys) if one.get(key) != two.get(key)]
    return found


def leftovers(out: Path, whole: Path) -> list[str]:
    """Files of a run that a whole one does not leave; the ranks' messages and logs apart."""
    usual = {str(p.relative_to(whole)) for p in whole.rglob("*")}
    found = [p.relative_to(out) for p in out.rglob("*") if p.is_file()]
    return sorted(str(p) for p in found if str(p) not in usual
                  and p.suffix != ".log" and p.parts[0] != ".sessions")  # fmt: skip


def names(row: dict[str, Any]) -> dict[str, Any]:
    """The verdicts on a row."""
    ends, spared = row.get("ends", []), row["victim"] == "scheduler"
    worker = row["victim"].startswith(
        "worker"
    )  # the run goes on without it, and says so at its end
    limit = math.inf if worker else NAMED_S
    said = row.get("named_s", {})
    named = "error" not in row and (spared or all(e in said and said[e] <= limit for e in ends))
    remedy = "error" not in row and (
        spared or all(end == "job" or REMEDY.search(row["last"][end]) for end in ends)
    )
    orphaned = bool(row.get("orphans", True)) or bool(row.get("temporary"))
    same = row.get("differing") == [] and row.get("left") == []
    well = named and remedy and not orphaned and same
    return {"named": named, "remedy": remedy, "orphaned": orphaned, "same": same, "well": well}
