"""Plant differences one at a time, and check what the finder reports; also check that mistakes
which leave nothing to compare fail their trial, and for false alarms where nothing is planted.

    python benchmarks/planted/run.py [--only NAME …] [--backend torch|mindspore] [--clean-seeds N]
                                     [--jobs N] [--out FILE] [--markdown DIR]

Every planted trial is a whole ``dualml run`` of two frameworks with its verdict and finding; what
they have in common (the other framework's trial) runs only once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from planted.plants import APART, PLANTS, REFUSED, Plant  # noqa: E402

BACKENDS = ("torch", "mindspore")
#: One thread each: small trials gain nothing from more, and lose when cores are shared.
SETTINGS = ("--backend", "both", "--threads", "1")
#: Seconds of one run.
LIMIT = 9000
FILES = ("planted.toml", "planted_text.toml")
#: Experiment file of the mistakes that no cause lists (`unlisted`).
UNLISTED = "unlisted.toml"
#: Lock by which runs without a plant are made once, by whoever needs them first.
BASES = threading.Lock()


def dualml(*words: object, planted: str = "") -> dict[str, Any]:
    """Run ``dualml run …`` and return its summary; exit code 3 is allowed."""
    env = dict(os.environ)
    if planted:
        paths = [str(HERE / "site"), env.get("PYTHONPATH", "")]
        env |= {"DUALML_PLANTED": planted, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, "-m", "dualml", "run", *map(str, words), "--json", "--no-report"],
        capture_output=True,
        text=True,
        env=env,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode not in (0, 1, 3) or not done.stdout.startswith("{"):
        raise SystemExit(f"dualml run {' '.join(map(str, words))}: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def experiment_of(arm: str) -> Path:
    """Return the file that has the arm; KeyError if none has."""
    return {name: HERE / file for file, name in arms(*FILES, UNLISTED)}[arm]


def base(arm: str, folder: Path) -> Path:
    """Run one arm with nothing planted."""
    out = folder / f"base-{arm}"
    with BASES:
        if not out.exists():
            told = dualml(experiment_of(arm), "--arm", arm, *SETTINGS, "--out", out)
            if told["exit_code"]:
                raise SystemExit(f"{arm}: not equal with nothing planted: {told['parity']}")
    return out


def trial(plant: Plant, backend: str, folder: Path) -> dict[str, Any]:
    """Return what verdict and finder say of one planted difference."""
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
    causes = finding.get("causes", [])
    cause = next(iter(causes), {})
    shutil.rmtree(out)
    return {
        "plant": plant.name,
        "backend": backend,
        "arm": plant.arm,
        "about": plant.about,
        "status": mine["status"],
        "reason": mine["reason"],
        "refused": mine["status"] == "failed" and APART in (mine["reason"] or ""),
        "verdict": verdict,
        "why": told["parity"][0].get("reason") if told["parity"] else None,
        "detected": verdict == "different" or bool(finding.get("backend")),
        "side": finding.get("backend"),
        "right_side": finding.get("backend") == backend,
        "phase": finding.get("phase"),
        "true_phase": plant.phase,
        "right_phase": finding.get("phase") in plant.phases,
        "cause": cause.get("cause"),
        "score": cause.get("score"),
        "detail": cause.get("detail"),
        "fits": cause.get("fits"),
        "others": [other for other in causes[1:] if other.get("fits")],
        "true_causes": list(plant.causes),
        "right_cause": cause.get("cause") in plant.causes,
        "step": finding.get("step"),
        "tensor": finding.get("tensor"),
        "ranks": finding.get("ranks"),
        "text": finding.get("text", {}).get("en"),
        "finding": finding.get("status"),
        "finding_reason": finding.get("reason"),
    }


def line(row: dict[str, Any]) -> str:
    """Return one row for the console: detected, side, phase, cause."""
    right = ("detected", "right_side", "right_phase", "right_cause")
    marks = "".join("✓" if row[key] else "✗" for key in right)
    why = " ".join(filter(None, (row["finding_reason"], row["reason"])))
    return (
        f"{marks} {row['plant']} in {row['backend']}: {row['phase']} ({row['true_phase']}), "
        f"{row['cause']} {row['score'] or 0:.3f} {row['detail']}; {row['verdict']} {why}"
    )


def clean(file: str, arm: str, seeds: int, folder: Path) -> list[dict[str, Any]]:
    """Return the verdicts of an arm with nothing planted, for every seed."""
    out = folder / f"clean-{arm}"
    every = ",".join(map(str, range(1, seeds + 1)))
    told = dualml(HERE / file, "--arm", arm, "--seed", every, *SETTINGS, "--out", out)
    ranks = {t["arm"]: t.get("world_size", 1) for t in told["trials"]}[arm]
    parity = json.loads((out / "parity.json").read_text("utf-8"))
    shutil.rmtree(out)
    if len(parity["comparisons"]) < seeds:
        raise SystemExit(f"{len(parity['comparisons'])} of {seeds} clean trials were compared")
    return [
        {
            "arm": arm,
            "seed": one["seed"],
            "ranks": ranks,
            "verdict": one["verdict"],
            "reason": one["reason"],
            "ratio": one["evidence"].get("worst_ratio"),
            "first": one.get("first_divergence"),
        }
        for one in parity["comparisons"]
    ]


def arms(*files: str) -> Iterator[tuple[str, str]]:
    """Return the file and name of every arm of these files, or of those with clean trials."""
    for file in files or FILES:
        told = tomllib.loads((HERE / file).read_text("utf-8"))
        yield from ((file, arm) for arm in told["arms"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(PLANTS | REFUSED))
    parser.add_argument("--backend", choices=BACKENDS)
    parser.add_argument("--clean-seeds", type=int, default=0, help="seeds of every arm; 0: none")
    parser.add_argument("--no-plants", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("planted.json"))
    parser.add_argument("--markdown", type=Path, help="folder for planted.md and planted.zh.md")
    return parser.parse_args()


class Record:
    """The measurements so far, in a file that is written after every run; earlier entries stay."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known: dict[str, Any] = {"plants": [], "refused": [], "clean": []}
        if file.exists():
            self.known |= json.loads(file.read_text("utf-8"))

    def planted(self, row: dict[str, Any]) -> None:
        self.replace("plants", [row], ("plant", "backend"), [*PLANTS])
        print(line(row), flush=True)

    def refused(self, row: dict[str, Any]) -> None:
        kept = ("plant", "backend", "arm", "about", "status", "reason", "verdict", "refused")
        self.replace("refused", [{k: row[k] for k in kept}], ("plant", "backend"), [*REFUSED])
        mark = "✓" if row["refused"] else "✗"
        print(f"{mark} {row['plant']} in {row['backend']}: {row['reason']}", flush=True)

    def clean(self, rows: list[dict[str, Any]]) -> None:
        self.replace("clean", rows, ("arm", "seed"), [arm for _, arm in arms()])
        alarms = sum(row["verdict"] == "different" for row in rows)
        print(f"{rows[0]['arm']}: {len(rows)} clean trials, {alarms} false alarms", flush=True)

    def replace(
        self, kind: str, rows: list[dict[str, Any]], key: tuple[str, str], order: list[str]
    ) -> None:
        new = {tuple(row[k] for k in key) for row in rows}
        kept = [row for row in self.known[kind] if tuple(row[k] for k in key) not in new]
        place = {name: i for i, name in enumerate(order)}
        self.known[kind] = sorted([*kept, *rows], key=lambda row: place.get(row[key[0]], 0))
        text = json.dumps(self.known, indent=1, ensure_ascii=False)
        self.file.write_text(text, "utf-8")


def measure(asked: argparse.Namespace, record: Record) -> int:
    """Make all requested runs and return the number of failed ones."""
    failed = 0
    backends = (asked.backend,) if asked.backend else BACKENDS
    with (
        tempfile.TemporaryDirectory(prefix="dualml-planted-") as made,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        folder = Path(made)
        runs: dict[Future[Any], tuple[str, Callable[[Any], None]]] = {}
        for plants, keep in ((PLANTS, record.planted), (REFUSED, record.refused)):
            for plant in () if asked.no_plants else plants.values():
                for backend in backends if not asked.only or plant.name in asked.only else ():
                    run = pool.submit(trial, plant, backend, folder)
                    runs[run] = f"{plant.name} in {backend}", keep
        for file, arm in arms() if asked.clean_seeds else ():
            run = pool.submit(clean, file, arm, asked.clean_seeds, folder)
            runs[run] = f"{arm}, nothing planted", record.clean
        try:
            for run in as_completed(runs):
                name, keep = runs[run]
                try:
                    keep(run.result())
                except (SystemExit, subprocess.TimeoutExpired) as failure:  # the others go on
                    print(f"✗ {name}: {failure}", flush=True)
                    failed += 1
        except BaseException:  # Ctrl-C: what has not begun does not begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def main() -> int:
    asked = arguments()
    record = Record(asked.out)
    failed, known = measure(asked, record), record.known
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
    passed = sum(not r["refused"] for r in known["refused"])
    print(f"{len(known['refused'])} that leave nothing to compare: {passed} not refused")
    print(f"{len(known['clean'])} clean: {len(alarms)} false alarms")
    return 1 if failed or wrong or passed or alarms or (rows and causes < 0.9 * len(rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
