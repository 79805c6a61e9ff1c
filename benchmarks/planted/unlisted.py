"""Plant mistakes that no cause of the finder lists in either framework, and count right causes.

    python benchmarks/planted/unlisted.py [--half known|held-out] [--only NAME …]
                                          [--backend torch|mindspore] [--jobs N] [--out FILE]

They were written before anybody looked at how the finder would explain them, and are halved by a
hash of their names. A cause is *right* if it is the mistake, *among* if the finder says that it
cannot tell its first cause from the mistake, *wrong* if another one is reported as found, and
*none* if nothing is. A cause that changes the rule is right if it computes what the plant does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from dualml.algorithms.optim import rule_from  # noqa: E402
from dualml.parity.finder.lines.program import replace_lines  # noqa: E402
from planted import run as runs  # noqa: E402
from planted.plants import Plant  # noqa: E402
from planted.unlisted_rules import RULES  # noqa: E402

HALVES = ("known", "held-out")
VERDICTS = ("right", "among", "wrong", "none")
#: Cause → the details that it has to have; a function judges a detail itself.
Answers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class UnlistedPlant(Plant):
    """One mistake, with the causes that name it although none lists it."""

    answers: Answers

    @property
    def half(self) -> str:
        """Half to which it belongs: ``known`` or ``held-out``."""
        return HALVES[hashlib.sha256(self.name.encode()).digest()[0] % 2]


PLANTS: dict[str, UnlistedPlant] = {}


def add(name: str, arm: str, phase: str, about: str, **answers: Mapping[str, Any]) -> None:
    """Add a plant; ``answers``: cause, with underscores, → details."""
    causes = {cause.replace("_", "-"): detail for cause, detail in answers.items()}
    PLANTS[name] = UnlistedPlant(name, arm, phase, tuple(causes), about, causes)


def are_even(updates: Any) -> bool:
    return bool(updates) and all(update % 2 == 0 for update in updates)


LAST_LAYER = ["fc3.weight", "fc3.bias"]
TWICE = {"ranks": [0], "weights": [2]}
add(
    "first-gradient-dampened",
    "dampened",
    "update",
    "the first gradient is dampened, too",
)
add("nesterov-with-old-buffer", "nesterov-plain", "update", "Nesterov with the buffer of before")
add(
    "buffer-reset-at-two",
    "momentum",
    "update",
    "the momentum begins anew at update 2",
    state_lost={"updates": [2]},
)
add("momentum-times-sum", "momentum", "update", "b = μ(b + g) instead of μb + g")
add("average-with-beta2", "adam-plain", "update", "m with β₂")
add("square-of-average", "adam-plain", "update", "v of m² instead of g²")
add("only-first-corrected", "adam-plain", "update", "bias correction of m alone")
add("second-corrected-twice", "adam-plain", "update", "bias correction of v twice")
add("decay-only-in-average", "adam-decay", "update", "weight decay in m, not in v")
add("decay-after-step", "adamw-decay", "update", "weight decay after the step")
add("corrected-squares", "rmsprop-momentum", "update", "RMSprop with Adam's bias correction")
add(
    "root-around-epsilon",
    "adagrad-eps",
    "update",
    "√(G + ε) instead of √G + ε",
    eps_inside_root={"eps": 1e-3},
)
add(
    "last-layer-every-second",
    "adam-plain",
    "update",
    "the last layer moves in odd updates only",
    frozen_parameters={"parameters": LAST_LAYER, "updates": are_even},
)
add(
    "last-layer-slower",
    "momentum",
    "update",
    "the last layer at a tenth of the rate",
    scaled_tensors={"tensors": LAST_LAYER, "factor": 0.1},
)
add(
    "one-tensor-twice",
    "adam-plain",
    "gradient",
    "the gradient of fc2.weight doubled",
    scaled_tensors={"tensors": ["fc2.weight"], "factor": 2},
)
add(
    "uneven-parts-alike",
    "uneven-ring",
    "gradient",
    "11, 11 and 10 samples averaged alike",
    mean_weights={"weights": [1 / 3, 1 / 3, 1 / 3]},
)
add(
    "ring-chunk-twice",
    "uneven-ring",
    "aggregation",
    "the ring's first chunk is added twice",
    changed_message={"change": "repeated", "step": 1},
)
add(
    "rank-zero-twice",
    "nodes-buckets",
    "aggregation",
    "rank 0 counts twice",
    doubled_rank=TWICE,
    lost_rank=TWICE,
)
add(
    "tail-of-rank-zero",
    "nodes-buckets",
    "aggregation",
    "of a bucket's last quarter only rank 0's",
    lost_rank={"ranks": [1], "tail": 0.25},
)
add(
    "last-micro-batch-twice",
    "micro-batches",
    "gradient",
    "the fourth micro-batch counts twice",
    mean_weights={"of": "micro-batches"},
    lost_micro_batch={"micro-batches": [3], "weights": [2]},
)


def computes_alike(rule: Any, first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    """Return whether two updates of a rule agree on random tensors from common states."""
    draw = np.random.default_rng(0)
    p = draw.normal(size=(5, 4))
    state = {key: np.zeros_like(p) for key in rule.state_keys}
    for step in range(1, 7):
        g, lr = draw.normal(size=p.shape), rule.lr / step
        with np.errstate(all="ignore"):
            (a, after), (b, right) = (f(rule, p, g, state, step, lr) for f in (first, second))
        pairs = [(a - p, b - p), *((after[key], right[key]) for key in rule.state_keys)]
        if not all(np.allclose(x, y, rtol=1e-4, atol=1e-9, equal_nan=True) for x, y in pairs):
            return False
        p, state = b, right
    return True


def matches(told: Any, wanted: Any) -> bool:
    """Return whether a cause's detail is the wanted one: numbers to a thousandth, names in any
    order."""
    if callable(wanted):
        return bool(wanted(told))
    if isinstance(wanted, list):
        if all(isinstance(name, str) for name in [*wanted, *told]):
            return sorted(told) == sorted(wanted)
        return len(told) == len(wanted) and all(map(matches, told, wanted))
    if isinstance(wanted, float | int) and isinstance(told, float | int):
        return math.isclose(told, wanted, rel_tol=1e-3, abs_tol=1e-6)
    return bool(told == wanted)


def is_right(plant: UnlistedPlant, cause: Mapping[str, Any]) -> bool:
    """Return whether a cause, as the finder writes it, is the planted mistake."""
    detail = {k: tuple(v) if k == "betas" else v for k, v in cause["detail"].items()}
    wanted = plant.answers.get(cause["cause"])
    if wanted is not None:
        return all(key in detail and matches(detail[key], told) for key, told in wanted.items())
    if plant.name not in RULES:
        return False
    arms = tomllib.loads((HERE / runs.UNLISTED).read_text("utf-8"))["arms"]
    rule, update = rule_from(arms[plant.arm]["optimizer"]), RULES[plant.name][1]
    if cause["cause"] == "changed-line":
        changed = replace_lines(rule, detail["line"], detail["instead"])
        return computes_alike(rule, changed, update)
    if detail and set(detail) <= {field.name for field in fields(rule)}:
        other = replace(rule, **detail)
        return computes_alike(rule, lambda _, *a: other.update_param(*a), update)
    return False


def judge(plant: UnlistedPlant, row: Mapping[str, Any]) -> str:
    """Return the verdict on the finder's first cause, one of `VERDICTS`."""
    if not row["fits"]:
        return "none"
    if is_right(plant, row):
        return "right"
    return "among" if any(is_right(plant, other) for other in row["others"]) else "wrong"


def measure(plant: UnlistedPlant, backend: str, folder: Path) -> dict[str, Any]:
    """Run a plant in one framework and return its row."""
    row = runs.trial(plant, backend, folder)
    judged = judge(plant, row)
    return {**row, "half": plant.half, "judged": judged, "right_cause": judged == "right"}


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the counts of these rows as a line."""
    told = Counter(row["judged"] for row in rows)
    right = {key: sum(row[f"right_{key}"] for row in rows) for key in ("side", "phase")}
    counts = ", ".join(f"{told[verdict]} {verdict}" for verdict in VERDICTS)
    return f"{len(rows)} planted: side {right['side']}, phase {right['phase']}; cause {counts}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--only", nargs="*", choices=sorted(PLANTS))
    parser.add_argument("--backend", choices=runs.BACKENDS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("unlisted.json"))
    asked = parser.parse_args()
    known = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else []
    rows = {
        (row["plant"], row["backend"]): {**row, "judged": judge(PLANTS[row["plant"]], row)}
        for row in known
    }
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="dualml-planted-") as made,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        chosen = [
            (plant, backend)
            for plant in PLANTS.values()
            for backend in (asked.backend,) * bool(asked.backend) or runs.BACKENDS
            if asked.half in (None, plant.half) and (not asked.only or plant.name in asked.only)
        ]
        make = partial(measure, folder=Path(made))
        for run in as_completed([pool.submit(make, *one) for one in chosen]):
            try:
                row = run.result()
            except (SystemExit, subprocess.TimeoutExpired) as failure:  # the others go on
                print(f"✗ {failure}", flush=True)
                failed += 1
                continue
            rows[row["plant"], row["backend"]] = row
            asked.out.write_text(
                json.dumps([*rows.values()], indent=1, ensure_ascii=False), "utf-8"
            )
            print(f"{row['judged']:6}", runs.line(row), flush=True)
    for half in HALVES:
        for backend in runs.BACKENDS:
            own = [r for r in rows.values() if (r["half"], r["backend"]) == (half, backend)]
            print(f"{half}, {backend}: {summary(own)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
