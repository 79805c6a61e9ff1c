"""All verdicts of a run folder, written to ``parity.json``."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from dualml.files import read_json, readable, write_json
from dualml.model.spec import ModelSpec
from dualml.parity.compare import FLOOR, compare
from dualml.parity.statistics import equivalent
from dualml.parity.trajectory import Trajectory, read_trajectory
from dualml.runner.folder import RunFolder, read_run

FORMAT = 1
#: From best to worst: a run's overall verdict is the worst of its comparisons.
VERDICTS = ("equal", "statistically equal", "not comparable", "different")


def judge(folder: Path) -> dict[str, Any]:
    """Compare every pair of backends for every arm and seed; the content of ``parity.json``.

    Raises:
        UserError: not a run folder.
    """
    run = read_run(folder)
    settings = run["experiment"]["parity"]
    where = RunFolder(folder, run)
    with readable(f"{folder / 'plan'}: not a readable plan"):
        model = ModelSpec.restore(read_json(folder / "plan" / "plan.json")["model"])
    parameters = list(model.parameters())
    comparisons = []
    backends = list(dict.fromkeys(trial["backend"] for trial in run["trials"]))
    trials = {(t["arm"], t["seed"], t["backend"]): t for t in run["trials"]}
    for arm in run["experiment"]["arms"]:
        for seed in run["experiment"]["seeds"]:
            mine = {b: trials[arm, seed, b] for b in backends if (arm, seed, b) in trials}
            read = {
                b: read_trajectory(where.trial_folder(t), b, parameters)
                for b, t in mine.items()
                if t["status"] == "ok"
            }
            for a, b in combinations(sort(backends), 2):
                found = one(mine, read, a, b, settings["margin"])
                comparisons.append({"arm": arm, "seed": seed, "a": a, "b": b, **found})
    settle_chaos(comparisons, trials)
    return {
        "format": FORMAT,
        "settings": {key: settings[key] for key in ("draws", "horizon", "margin")}
        | {"floor": FLOOR},
        "comparisons": comparisons,
    }


def write(folder: Path, parity: dict[str, Any]) -> None:
    write_json(folder / "parity.json", parity)


def sort(backends: list[str]) -> list[str]:
    """The frameworks before the referee, so that pairs read torch–mindspore, torch–numpy, …"""
    return sorted(backends, key=lambda name: name == "numpy")


def one(
    trials: dict[str, Any], read: dict[str, Trajectory], a: str, b: str, margin: float
) -> dict[str, Any]:
    missing = [name for name in (a, b) if name not in read]
    if missing:
        statuses = {name: trials[name]["status"] for name in missing if name in trials}
        return {"verdict": "not comparable", "reason": "trial_missing", "evidence": statuses}
    if trials[a]["plan_hash"] != trials[b]["plan_hash"]:
        return {"verdict": "not comparable", "reason": "other_plan", "evidence": {}}
    return compare(read[a], read[b], margin, [t.envelope for t in read.values() if t.envelope])


def settle_chaos(comparisons: list[dict[str, Any]], trials: dict[Any, Any]) -> None:
    """Trajectories too chaotic to compare may still reach the same result over several seeds.

    Not where a seed is different: a difference that was seen is no matter of statistics.
    """
    pairs = {(c["arm"], c["a"], c["b"]) for c in comparisons if c["reason"] == "chaotic"}
    for arm, a, b in pairs:
        all_seeds = [c for c in comparisons if (c["arm"], c["a"], c["b"]) == (arm, a, b)]
        mine = [c for c in all_seeds if c["verdict"] == "equal" or c["reason"] == "chaotic"]
        if len(mine) < 3 or any(c["verdict"] == "different" for c in all_seeds):
            continue
        seeds = [c["seed"] for c in mine]
        test = equivalent(
            [trials[arm, s, a]["test_accuracy"] for s in seeds],
            [trials[arm, s, b]["test_accuracy"] for s in seeds],
        )
        for c in mine:
            if c["reason"] != "chaotic":
                continue
            c["evidence"]["equivalence"] = test
            if test["equivalent"]:
                c.update(verdict="statistically equal", reason="equivalent_over_seeds")
            else:
                c["reason"] = "not_equivalent_over_seeds"


def worst(parity: dict[str, Any]) -> str:
    """The run's overall verdict; ``equal`` where nothing was compared."""
    found = [c["verdict"] for c in parity["comparisons"]]
    return max(found, key=VERDICTS.index, default="equal")
