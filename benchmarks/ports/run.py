"""Compare every port of this folder with its original, and count correct verdicts and causes.

python benchmarks/ports/run.py [--half tuned|held-out|both] [--only NAME …] [--jobs N] [--out FILE]
    [--patch]

A hash of its name decides which half a port belongs to. Causes were developed with the tuned half;
the figures that count are those of the held-out half. With --patch a patch is searched for, and
those that are proved are counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.parity import compare

HERE = Path(__file__).parent
MODELS = HERE / "models"
HALVES = ("tuned", "held-out")
#: Distance in lines within which the named line counts as the wrong statement's.
NEAR = 3


@dataclass(frozen=True)
class Port:
    """One port of a case: a correct one (no kinds) or a wrong one."""

    name: str
    case: dict[str, Any]
    file: Path
    kinds: tuple[str, ...] = ()
    phase: str = ""
    attribute: str = ""
    old: str = ""
    new: str = ""

    @property
    def half(self) -> str:
        return HALVES[hashlib.sha256(self.name.encode()).digest()[0] % 2]


def ports() -> Iterator[Port]:
    """Yield all ports that the case files describe."""
    for toml in sorted(HERE.glob("*.toml")):
        case = tomllib.loads(toml.read_text())
        base = MODELS / case["mindspore"]
        for row in case.get("right", []):
            yield Port(row["name"], case, MODELS / row.get("mindspore", base.name))
        for row in case.get("wrong", []):
            yield Port(
                row["name"],
                case,
                base,
                tuple(row["kind"]),
                row["phase"],
                row.get("attribute", ""),
                row["old"],
                row["new"],
            )


def array(spec: dict[str, Any], rng: np.random.Generator) -> Any:
    """Return a random input array as a case file specifies it."""
    if "values" in spec:
        return np.asarray(spec["values"])
    if "below" in spec:
        return rng.integers(0, spec["below"], spec["shape"])
    return rng.standard_normal(spec["shape"]).astype(np.float32)


def judged(port: Port, patch: bool = False) -> dict[str, Any]:
    """Compare a port with its original, and return the row; with ``patch`` search for a patch."""
    case, rng = port.case, np.random.default_rng(7)
    inputs = [array(spec, rng) for spec in case["inputs"]]
    targets = array(case["targets"], rng) if "targets" in case else None
    first = MODELS / case["torch"]
    row: dict[str, Any] = {
        "name": port.name,
        "half": port.half,
        "kinds": port.kinds,
        "phase": port.phase,
        "attribute": port.attribute,
    }
    with tempfile.TemporaryDirectory(prefix="dualml-port-") as folder:
        second = port.file
        if port.old:
            source = second.read_text()
            if source.count(port.old) != 1:
                raise SystemExit(f"{port.name}: {port.old!r} is not there exactly once")
            second = Path(folder) / second.name
            second.write_text(source.replace(port.old, port.new))
            row["line"] = source[: source.index(port.old)].count("\n") + 1
            row["lines"] = port.new.count("\n") + 1
        pair: dict[str, Any] = {"loss": case.get("loss")}
        if pair["loss"] == "own":
            pair["loss"] = (f"{first}:loss", f"{second}:loss")
        if "optimizer" in case:
            pair["optimizer"] = case["optimizer"]
            if case["optimizer"] == "own":
                pair["optimizer"] = (f"{first}:optimizer", f"{second}:optimizer")
        start = time.perf_counter()
        try:
            found = compare(
                f"{first}:Net",
                f"{second}:Net",
                inputs,
                targets=targets,
                steps=case.get("steps", 1) if "optimizer" in case else 1,
                train=case.get("train", True),
                map=case.get("map"),
                patch=patch,
                **pair,
            )
        except UserError as error:
            return row | {"verdict": "refused", "text": str(error)[:400]}
        row["seconds"] = time.perf_counter() - start
    described = found.describe()
    row |= {
        "verdict": found.verdict,
        "text": described["text"]["en"],
        "first": described["first"],
        "explanation": described["explanation"],
        **({"patch": found.patch} if patch else {}),
    }
    return row | graded(row)


def graded(row: dict[str, Any]) -> dict[str, Any]:
    """Return whether the verdict, the phase, a cause and its line are right."""
    wrong = bool(row["kinds"])
    grade: dict[str, Any] = {"right": (row["verdict"] == "different") == wrong}
    if not wrong or row["verdict"] != "different":
        return grade
    grade["phase_right"] = (row["first"] or {}).get("phase") == row["phase"]
    explanation = row["explanation"] or {"causes": []}
    named = [one for cause in explanation["causes"][:1] for one in cause["alterations"]]
    grade["named"] = bool(named)
    grade["cause_right"] = any(fits(one, row) for one in named)
    other = (explanation["causes"] or [{}])[0].get("other") or explanation.get("other") or {}
    lines = [(other.get(key) or {}).get("line", -NEAR) for key in ("place", "built")]
    last = row["line"] + row["lines"] + NEAR
    grade["line_right"] = any(row["line"] - NEAR <= line <= last for line in lines)
    return grade


#: Equivalent names: the port author's → those of mutations.
SAME = {
    "axis": ("dim",),
    "pad_mode": ("padding", "mode"),
    "max_norm": ("gradient:", "form:plain"),
    "lr": ("lr_",),
    "betas": ("beta1", "beta2", "bias_correction", "first_correction", "second_correction"),
    "bias_correction": ("form:no_",),
    "correction": ("unbiased",),
    "unbiased": ("correction",),
    "decoupled": ("form:decoupled", "form:coupled"),
    "momentum": ("form:lr_inside", "beta1"),
    "weight_decay": ("form:decoupled", "form:coupled", "form:decay_after", "decay:"),
    "dim": ("axis",),
    "clip": ("gradient:", "form:plain"),
    "eps": ("form:eps",),
    "approximate": ("gelu",),
    "square_avg": ("form:from_one",),
    # Of a schedule, what shows is the rate in each update.
    **dict.fromkeys(
        ("last_epoch", "power", "gamma", "warmup", "total", "T_max", "step_size"), ("lr_schedule",)
    ),
}
#: Operations that only move elements: another setting is another arrangement.
MOVERS = frozenset(
    ("pad", "roll", "flip", "permute", "transpose", "reshape", "view", "flatten", "unflatten",
     "squeeze", "unsqueeze", "__getitem__", "cat", "stack", "split", "chunk", "repeat",
     "repeat_interleave", "tile", "expand")
)  # fmt: skip


def fits(one: dict[str, Any], row: dict[str, Any]) -> bool:
    """Return whether a mutation is what was planted.

    Equivalent descriptions count. A factor may appear as a mean instead of a sum (one over the
    count), as a missing or an additional scale, or as a setting of a function (a temperature). A
    setting of an operation that only moves elements is an arrangement, and a setting that affects
    only a gradient belongs to the gradient.
    """
    factor = (
        one["kind"] == "constant" and (one["value"] or [0])[0] == "scale"
        if isinstance(one["value"], list)
        else one["kind"] == "constant"
    )
    kinds = {one["kind"]} | ({"missing", "extra", "function"} if factor else set())
    if one["kind"] == "missing" and one["action"] == "set":
        kinds.add("constant")
    if one["action"] == "borrow" and "parameters" in row["kinds"]:
        kinds.add("parameters")
    if one["kind"] == "gradient" and one["action"] == "optimizer":
        kinds.add("optimizer")
    if one["kind"] == "attribute" and one["operation"] in MOVERS:
        kinds.add("layout")
    if one["kind"] == "attribute" and row["phase"] == "gradient":
        kinds.add("gradient")
    if not kinds & set(row["kinds"]):
        return False
    if one["kind"] in ("attribute", "optimizer") and row["attribute"]:
        argument = str(one["argument"])
        if one["action"].startswith("line:"):  # of a user's own optimizer
            argument += f"{one['value']} {one['line']}"
        words = (row["attribute"], *SAME.get(row["attribute"], ()))
        return any(word in argument or argument in word for word in words)
    return True


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    for half in HALVES:
        of_half = [row for row in rows if row["half"] == half]
        wrong = [row for row in of_half if row["kinds"]]
        right = [row for row in of_half if not row["kinds"]]
        found = [row for row in wrong if row["verdict"] == "different"]
        named = [row for row in found if row.get("named")]
        true = [row for row in named if row["cause_right"]]
        lines = [row for row in found if row.get("line_right")]
        alarms = [row for row in right if row["verdict"] != "equal"]
        failed = [row for row in found if "search for a cause ended" in row["text"]]
        yield (
            f"{half}: {len(found)} of {len(wrong)} wrong ports are different; a cause is named for "
            f"{len(named)} and right for {len(true)} (precision {share(true, named)}, recall "
            f"{share(true, wrong)}); line {len(lines)}; {len(alarms)} of {len(right)} right ports "
            f"are not equal; {len(failed)} searches failed"
        )
        if any("patch" in row for row in named):
            proved = [row for row in named if row["patch"]["verdict"] == "equal"]
            yield f"{half}: {len(proved)} of {len(named)} named causes have a patch that is proved"


def share(some: list[Any], of: list[Any]) -> str:
    """Return a share in per cent, or "none" if there is nothing to share."""
    return f"{len(some) / len(of):.1%}" if of else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="each Nth port only")
    parser.add_argument("--start", type=int, default=0, help="from which on")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--patch", action="store_true", help="search for patches, too")
    given = parser.parse_args()
    chosen = [
        port
        for port in ports()
        if (given.half in (port.half, "both")) and (not given.only or port.name in given.only)
    ]
    chosen = chosen[given.start :: given.every]
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(partial(judged, patch=given.patch), chosen):
            rows.append(row)
            flags = " ".join(
                k for k in ("right", "phase_right", "cause_right", "line_right") if row.get(k)
            )
            if (row.get("patch") or {}).get("verdict") == "equal":
                flags += " proved"
            print(f"{row['name']:40} {row['verdict']:14} {flags}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1))
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
