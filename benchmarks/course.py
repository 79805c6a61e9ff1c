"""Plant every typical mistake and every correct variant into our solutions, and judge them.

    python benchmarks/course.py [--lab lab1] [--only NAME] [--seeds 3] [--json FILE]
    python benchmarks/course.py --strangers     # solutions of Lab 1 that somebody else wrote

Detected means that a requirement is not met; named, that the first unmet requirement names exactly
this mistake. A correct variant must meet all requirements. The seeds come from the clock, so that
no answer can be stored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from dualml.backend import backends
from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.exercise import Requirement
from dualml.course.labs import LABS, find_exercise


def judged(plant: Plant, seed: int) -> CheckResult:
    """Return the verdict on a solution with this change."""
    _, exercise = find_exercise(plant.file)
    package, _, name = exercise.solution.partition(":")
    source = (files(package) / name).read_text("utf-8")

    def concerns(requirement: Requirement) -> bool:
        return requirement.target == plant.target or not any(
            r.target == plant.target for r in exercise.requirements
        )

    with tempfile.TemporaryDirectory(prefix="dualml-") as folder:
        path = Path(folder) / plant.file
        path.write_text(plant.patch.apply(source), "utf-8")
        return check(exercise, path, seed, select=concerns)


def result(plant: Plant, seed: int) -> dict[str, object]:
    """Judge one plant and return its row."""
    began = time.monotonic()
    checked = judged(plant, seed)
    failed = [j for j in checked.judgements if j.status != "met"]
    named = [j for j in failed if j.mistakes]
    first = named[0].mistakes if named else ()
    return {
        "plant": plant.title,
        "mistake": plant.name,
        "right": plant.right,
        "seed": seed,
        "detected": not checked.is_passed,
        "named": first == (plant.name,),
        "alone": all(j.mistakes == (plant.name,) for j in failed),
        "said": [list(j.mistakes) for j in failed],
        "where": [j.requirement.name for j in failed],
        "trouble": [str(j.trouble) for j in failed if j.trouble][:1],
        "problems": [f"{p.kind} {p.what}" for p in checked.problems],
        "seconds": round(time.monotonic() - began, 2),
    }


def strangers(seed: int) -> None:
    """Print the verdicts on `benchmarks/strangers`: files written without knowledge of the
    judge."""
    folder = Path(__file__).parent / "strangers"
    rows = json.loads((folder / "truth.json").read_text("utf-8"))
    counts = dict.fromkeys(("wrong", "detected", "named", "misnamed", "right", "refused"), 0)
    for row in rows:
        exercise = find_exercise("optim_torch" if row["file"].startswith("torch") else "optim_ms")[
            1
        ]
        with tempfile.TemporaryDirectory(prefix="dualml-") as home:
            path = Path(home) / exercise.name
            path.write_bytes((folder / row["file"]).read_bytes())
            checked = check(exercise, path, seed)
        failed = [j for j in checked.judgements if j.status != "met"]
        said = next((j.mistakes for j in failed if j.mistakes), ())
        counts["wrong" if row["mistake"] else "right"] += 1
        if not row["mistake"]:
            counts["refused"] += bool(failed)
            continue
        counts["detected"] += bool(failed)
        counts["named"] += said[:1] == (row["name"],)
        counts["misnamed"] += bool(said) and said[:1] != (row["name"],)
        if said[:1] != (row["name"],):
            print("✗", row["file"], list(said), row["mistake"], flush=True)
    print(json.dumps(counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", choices=LABS, action="append")
    parser.add_argument("--only")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strangers", action="store_true")
    arguments = parser.parse_args()
    if arguments.strangers:
        strangers(time.time_ns() % 2**31)
        return
    known = backends()
    rows = []
    for lab in arguments.lab or LABS:
        for plant in load_plants(lab):
            backend = find_exercise(plant.file)[1].backend
            if arguments.only not in (None, plant.name) or (
                backend and not known[backend].installed()
            ):
                continue
            for _ in range(arguments.seeds):  # drawn of the clock
                row = result(plant, time.time_ns() % 2**31)
                rows.append(row)
                well = not row["detected"] if plant.right else row["alone"]
                if not well:
                    print("✗", json.dumps(row, ensure_ascii=False), flush=True)
    mistakes, variants = [r for r in rows if not r["right"]], [r for r in rows if r["right"]]
    summary = {
        "mistakes": len({r["mistake"] for r in mistakes}),
        "plants": len(mistakes),
        "detected": sum(bool(r["detected"]) for r in mistakes),
        "named": sum(bool(r["named"]) for r in mistakes),
        "named_everywhere": sum(bool(r["alone"]) for r in mistakes),
        "variants": len(variants),
        "refused": sum(bool(r["detected"]) for r in variants),
    }
    print(json.dumps(summary))
    if arguments.json:
        arguments.json.write_text(json.dumps({"summary": summary, "rows": rows}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
