"""Plant differences, one at a time, and see what the finder makes of them; and whether it ever
cries wolf where nothing was planted.

    python benchmarks/planted/run.py [--only NAME …] [--backend torch|mindspore] [--clean-seeds N]
                                     [--out FILE] [--markdown DIR]

Every planted trial is a whole ``dualml run`` of two frameworks with its verdict and its finding;
what is the same in all of them (the other framework's trial) is run once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from planted.plants import PLANTS, Plant  # noqa: E402

BACKENDS = ("torch", "mindspore")
#: One thread each: so small trials gain nothing from more, and lose where cores are shared.
SETTINGS = ("--backend", "both", "--threads", "1")
#: Seconds of one planted run.
LIMIT = 900


def dualml(*words: object, planted: str = "") -> dict[str, Any]:
    """The summary of ``dualml run …``, which may well exit with 3."""
    env = dict(os.environ)
    if planted:
        paths = [str(HERE / "site"), env.get("PYTHONPATH", "")]
        env |= {"DUALML_PLANTED": planted, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, "-m", "dualml", "run", *map(str, words), "--json", "--no-report"],
        capture_output=True, text=True, env=env, timeout=LIMIT * 10, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1, 3) or not done.stdout.startswith("{"):
        raise SystemExit(f"dualml run {' '.join(map(str, words))}: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def experiment_of(arm: str) -> Path:
    return HERE / ("planted_text.toml" if arm == "rnn" else "planted.toml")


def base(arm: str, folder: Path) -> Path:
    """A run of one arm with nothing planted."""
    out = folder / f"base-{arm}"
    if not out.exists():
        told = dualml(experiment_of(arm), "--arm", arm, *SETTINGS, "--out", out)
        if told["exit_code"]:
            raise SystemExit(f"{arm}: not equal with nothing planted: {told['parity']}")
    return out


def trial(plant: Plant, backend: str, folder: Path) -> dict[str, Any]:
    """What verdict and finder say of one planted difference."""
    out = folder / f"{plant.name}-{backend}"
    shutil.copytree(base(plant.arm, folder), out)
    run = json.loads((out / "run.json").read_text("utf-8"))
    for one in run["trials"]:
        if one["backend"] == backend:
            one.update(status="interrupted", reason="planted")
            shutil.rmtree(out / "trials" / one["arm"] / backend)
    (out / "run.json").write_text(json.dumps(run), "utf-8")
    told = dualml("--resume", out, planted=f"{backend}:{plant.name}")
    mine = next(t for t in told["trials"] if t["backend"] == backend)
    verdict = told["parity"][0]["verdict"] if told["parity"] else None
    finding = next(iter(told.get("findings", [])), {})
    cause = next(iter(finding.get("causes", [])), {})
    shutil.rmtree(out)
    return {
        "plant": plant.name, "backend": backend, "arm": plant.arm, "about": plant.about,
        "status": mine["status"], "reason": mine["reason"], "verdict": verdict,
        "why": told["parity"][0].get("reason") if told["parity"] else None,
        "detected": verdict == "different" or bool(finding.get("backend")),
        "side": finding.get("backend"), "right_side": finding.get("backend") == backend,
        "phase": finding.get("phase"), "true_phase": plant.phase,
        "right_phase": finding.get("phase") in plant.phases,
        "cause": cause.get("cause"), "score": cause.get("score"), "detail": cause.get("detail"),
        "true_causes": list(plant.causes), "right_cause": cause.get("cause") in plant.causes,
        "step": finding.get("step"), "tensor": finding.get("tensor"),
        "ranks": finding.get("ranks"), "text": finding.get("text", {}).get("en"),
        "finding": finding.get("status"), "finding_reason": finding.get("reason"),
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One row for the console: detected, side, phase, cause."""
    right = ("detected", "right_side", "right_phase", "right_cause")
    marks = "".join("✓" if row[key] else "✗" for key in right)
    why = " ".join(filter(None, (row["finding_reason"], row["reason"])))
    return (
        f"{marks} {row['plant']} in {row['backend']}: {row['phase']} ({row['true_phase']}), "
        f"{row['cause']} {row['score'] or 0:.3f} {row['detail']}; {row['verdict']} {why}"
    )


def clean(seeds: int, folder: Path) -> list[dict[str, Any]]:
    """Verdicts where nothing was planted: every arm with every seed."""
    found = []
    for name in ("planted.toml", "planted_text.toml"):
        out = folder / f"clean-{name}"
        every = ",".join(map(str, range(1, seeds + 1)))
        told = dualml(HERE / name, "--arm", "all", "--seed", every, *SETTINGS, "--out", out)
        sizes = {t["arm"]: t.get("world_size", 1) for t in told["trials"]}
        parity = json.loads((out / "parity.json").read_text("utf-8"))
        for one in parity["comparisons"]:
            found.append({
                "arm": one["arm"], "seed": one["seed"], "ranks": sizes[one["arm"]],
                "verdict": one["verdict"], "reason": one["reason"],
                "ratio": one["evidence"].get("worst_ratio"),
                "first": one.get("first_divergence"),
            })  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(PLANTS))
    parser.add_argument("--backend", choices=BACKENDS)
    parser.add_argument("--clean-seeds", type=int, default=0, help="seeds of every arm; 0: none")
    parser.add_argument("--no-plants", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("planted.json"))
    parser.add_argument("--markdown", type=Path, help="folder for planted.md and planted.zh.md")
    asked = parser.parse_args()
    known = (
        json.loads(asked.out.read_text("utf-8"))
        if asked.out.exists()
        else {"plants": [], "clean": []}
    )
    failed = 0
    with tempfile.TemporaryDirectory(prefix="dualml-planted-") as made:
        folder = Path(made)
        for plant in () if asked.no_plants else PLANTS.values():
            for backend in BACKENDS:
                if (asked.only and plant.name not in asked.only) or asked.backend not in (
                    None,
                    backend,
                ):
                    continue
                try:
                    row = trial(plant, backend, folder)
                except SystemExit as failure:  # of this one: the others go on
                    print(f"✗ {plant.name} in {backend}: {failure}", flush=True)
                    failed += 1
                    continue
                known["plants"] = [
                    r
                    for r in known["plants"]
                    if (r["plant"], r["backend"]) != (plant.name, backend)
                ] + [row]
                asked.out.write_text(json.dumps(known, indent=1, ensure_ascii=False), "utf-8")
                print(line(row), flush=True)
        if asked.clean_seeds:
            known["clean"] = clean(asked.clean_seeds, folder)
            asked.out.write_text(json.dumps(known, indent=1, ensure_ascii=False), "utf-8")
    if asked.markdown:
        from planted.pages import write

        write(known, asked.markdown)
    rows = known["plants"]
    wrong = [r for r in rows if not (r["detected"] and r["right_phase"])]
    alarms = [c for c in known["clean"] if c["verdict"] == "different"]
    causes = sum(r["right_cause"] for r in rows)
    counts = [sum(r[key] for r in rows) for key in ("detected", "right_phase", "right_cause")]
    told = "{} planted: {} detected, {} in the right phase, {} with the right cause"
    print(told.format(len(rows), *counts))
    print(f"{len(known['clean'])} clean: {len(alarms)} false alarms")
    return 1 if failed or wrong or alarms or (rows and causes < 0.9 * len(rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
