"""Plant the mistakes that no cause lists, and print what the finder says of them.

    PYTHONPATH=tests/core:. python tests/core/unlisted_run.py [--half known|held-out] [--only NAME]

Without ``--half`` both halves are run. A row is *right* if the first cause is the mistake, *among*
if the finder says that it cannot tell its first cause from the mistake, *wrong* if another cause is
reported as found, and *none* if nothing is.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import finder_cases as cases
import numpy as np
from unlisted_plants import PLANTS, Plant

from dualml.parity.finder.lines.program import replace_lines

HALVES = ("known", "held-out")


def spec_of(arm: str) -> Any:
    own = cases.plan(False)
    data = cases.samples(False)
    return own.training_spec(own.experiment.arms[arm], 0, data.train_x, data.train_y).rule


def computes_alike(rule: Any, first: Any, second: Any) -> bool:
    """Return whether two rules agree on random tensors over six updates."""
    draw = np.random.default_rng(0)
    p = draw.normal(size=(5, 4))
    sides = [(p, {k: np.zeros_like(p) for k in rule.state_keys}) for _ in range(2)]
    for step in range(1, 7):
        g, lr = draw.normal(size=p.shape), rule.lr / step
        # Both go on from the second: replays, too, start from one common state.
        with np.errstate(all="ignore"):
            sides = [f(rule, *(sides[1][0], g, sides[1][1]), step, lr) for f in (first, second)]
        (a, s), (b, t) = sides
        if not np.allclose(a - p, b - p, rtol=1e-4, atol=1e-9, equal_nan=True):
            return False
        if not all(np.allclose(s[k], t[k], rtol=1e-4, atol=1e-12) for k in rule.state_keys):
            return False
    return True


def matches(told: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return len(told) == len(wanted) and all(map(matches, told, wanted))
    if isinstance(wanted, float | int) and isinstance(told, float | int):
        return math.isclose(told, wanted, rel_tol=1e-3, abs_tol=1e-6)
    return bool(told == wanted)


def is_right(plant: Plant, cause: dict[str, Any]) -> bool:
    detail = {k: tuple(v) if k == "betas" else v for k, v in cause["detail"].items()}
    if plant.update is not None:
        rule = spec_of(plant.arm)
        if cause["cause"] == "changed-line":
            changed = replace_lines(rule, detail["line"], detail["instead"])
            return computes_alike(rule, changed, plant.update)
        if detail and set(detail) <= {field.name for field in fields(rule)}:
            other = replace(rule, **detail)
            return computes_alike(rule, lambda _, *a: other.update_param(*a), plant.update)
    wanted = plant.answers.get(cause["cause"])
    return wanted is not None and all(
        key in detail and matches(detail[key], value) for key, value in wanted.items()
    )


def judge(plant: Plant) -> tuple[str, dict[str, Any]]:
    found = cases.finding(plant.arm, {"torch": plant.fault})
    if found["status"] == "rounding only":
        return "unseen", found
    if not found["causes"] or found["status"] != "found":
        return "none", found
    first = found["causes"][0]
    if is_right(plant, first):
        return "right", found
    if any(is_right(plant, other) for other in found["causes"][1:] if other["fits"]):
        return "among", found
    return "wrong", found


def line(plant: Plant, verdict: str, found: dict[str, Any]) -> str:
    cause = next(iter(found.get("causes", [])), {})
    return (
        f"{verdict:6} {plant.name} ({plant.arm}): {found.get('phase')} "
        f"{found.get('first_steps')}, {cause.get('cause')} {cause.get('score') or 0:.6f} "
        f"{cause.get('fits')} {cause.get('detail')}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    for half in HALVES if asked.half is None else (asked.half,):
        told, begin = Counter[str](), time.perf_counter()
        own = [p for p in PLANTS.values() if p.half == half]
        for plant in own:
            if asked.only and plant.name not in asked.only:
                continue
            verdict, found = judge(plant)
            told[verdict] += 1
            print(line(plant, verdict, found), flush=True)
        seconds = time.perf_counter() - begin
        print(f"{half}: {sum(told.values())} plants, {dict(told)}, {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
