"""The checks after a kill: the lost rank is named, nothing is left, and the files equal those of an
undisturbed run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Keys that depend on the clock, the machine, or the number of starts.
TIMES = (
    "train_s",
    "compile_s",
    "spent",
    "step_s",
    "sent_bytes",
    "environment",
    "peak_memory_mb",
    "device_memory",
)
SAME = ("weights.safetensors", "trace.safetensors", "envelope.json")
#: Relative unit in the last place of float32.
ULP = 2.0**-23
#: Most seconds until a kill is named; Slurm takes longer to notice a dead node.
NAMED_S, SLURM_S = 30.0, 60.0
#: A last line that says how to resume.
REMEDY = re.compile(r"dualml (run --resume|resume \d)|again")


def lost_ranks(victim: str) -> tuple[int, ...]:
    """Return the ranks that a kill removes; the two ends of a cable each lose the other."""
    if victim == "cable":
        return (0, 1)
    if victim in ("worker 0", "node a"):
        return (0,)
    return (1,)


def names_lost_rank(line: str, ranks: Sequence[int], end: str) -> bool:
    """Return whether a line names a lost rank."""
    if end == "job" and re.search("its process was gone|the loss of a node", line):
        return True  # in the words of the queue, or of Slurm, which takes the job up again itself
    return any(re.search(rf"\brank {rank}\b", line) for rank in ranks)


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file without values of the clock."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def last_digit(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Return whether two records hold one loss up to a unit in the last place. Some MindSpore
    kernels sum in an order that depends on memory addresses."""
    a, b = one["value"], two["value"]
    return {**one, "value": b} == two and one["metric"] == "loss" and abs(a - b) <= ULP * abs(a)


def differing(whole: Path, other: Path) -> tuple[int, int]:
    """Return the records that differ in two files, and those of them that differ only in the last
    place."""
    one, two = records(whole), records(other)
    pairs = [(a, b) for a, b in zip(one, two, strict=False) if a != b]
    return len(pairs) + abs(len(one) - len(two)), sum(last_digit(*pair) for pair in pairs)


def last_digits(whole: Path, other: Path, backend: str) -> int:
    """Return the losses of two runs that differ only in the last place."""
    return sum(
        differing(path, twin)[1]
        for path in whole.glob(f"trials/*/{backend}/seed0/rank?.jsonl")
        if (twin := other / path.relative_to(whole)).exists()
    )


def differing_files(whole: Path, other: Path, backend: str) -> list[str]:
    """Return the files of two runs of one plan that differ or are missing, apart from losses that
    MindSpore summed in another order."""
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
                differ, rounded = differing(path, twin)
                found += [name] if differ > (rounded if backend == "mindspore" else 0) else []
            elif path.name == "result.json":
                one, two = (json.loads(p.read_text("utf-8")) for p in (path, twin))
                keys = (one.keys() | two.keys()) - set(TIMES)
                found += [f"{name}: {key}" for key in sorted(keys) if one.get(key) != two.get(key)]
    return found


def leftovers(out: Path, whole: Path) -> list[str]:
    """Return the files that an undisturbed run does not leave, except the ranks' messages and
    logs."""
    usual = {str(p.relative_to(whole)) for p in whole.rglob("*")}
    found = [p.relative_to(out) for p in out.rglob("*") if p.is_file()]
    return sorted(
        str(p)
        for p in found
        if str(p) not in usual and p.suffix != ".log" and p.parts[0] != ".sessions"
    )


def names(row: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts on a row."""
    # A run does without the queue's scheduler, and without Slurm's own process of a rank.
    spared = (row["way"], row["victim"]) in (("local", "scheduler"), ("slurm", "runner"))
    ends = row.get("ends", [])
    worker = row["victim"].startswith("worker")  # the run goes on, and says so at its end
    limit = math.inf if worker else SLURM_S if row["way"] == "slurm" else NAMED_S
    said = row.get("named_s", {})
    named = "error" not in row and (spared or all(e in said and said[e] <= limit for e in ends))
    remedy = "error" not in row and (
        spared or all(end == "job" or REMEDY.search(row["last"][end]) for end in ends)
    )
    orphaned = bool(row.get("orphans", True)) or bool(row.get("temporary"))
    same = row.get("differing") == [] and row.get("left") == []
    well = named and remedy and not orphaned and same
    return {"named": named, "remedy": remedy, "orphaned": orphaned, "same": same, "well": well}
