"""Test `dualml compare` of two runs with harmless changes and with wrong ones.

    python benchmarks/guard.py [--only NAME …] [--jobs N] [--out FILE] [--markdown DIR]

Each change is an arm of benchmarks/planted, run again in PyTorch with one difference: settings,
threads, ranks, kernels, or one of the plants. Two usual checks judge the same pair: that all losses
are equal when printed with six digits, and that the final losses are within 0.001. A hash of its
name decides whether a change is in the tuned or the held-out half; the guard has no tuned setting.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from planted.plants import PLANTS  # noqa: E402
from planted.run import experiment_of  # noqa: E402

from dualml.experiment.store.records import read_records  # noqa: E402
from dualml.experiment.store.trial import trial_folder  # noqa: E402
from dualml.parity.against import compare_runs  # noqa: E402
from dualml.report.page.markdown import replace_between  # noqa: E402

BACKEND, DIGITS, TOLERANCE = "torch", 6, 1e-3
#: Seconds of one run.
LIMIT = 600
CHECKS = ("guard", "digits", "tolerance")
BASES, FAILED = Lock(), dict[str, str]()
BEGIN, END = "<!-- guard: begin -->", "<!-- guard: end -->"
KINDS = {
    "en": {"wrong": "wrong", "harmless": "harmless"},
    "zh": {"wrong": "错误", "harmless": "无害"},
}
HEADS = {
    "en": ["changes", "half", "number", "guard", "losses equal in 6 digits", "final loss ± 0.001"],
    "zh": ["改动", "部分", "数目", "守卫", "损失 6 位相同", "最终损失 ± 0.001"],
}
HALVES = {"en": ("first", "held out"), "zh": ("前半", "留出")}
RIGHT = {
    "en": {"wrong": "{} refused", "harmless": "{} passed"},
    "zh": {"wrong": "拒绝 {}", "harmless": "放行 {}"},
}


@dataclass(frozen=True)
class Change:
    """An arm run again with one change."""

    name: str
    arm: str
    wrong: bool
    about: str
    set: Sequence[str] = ()
    words: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(f"{self.name} {self.arm}".encode()).digest()

    @property
    def held_out(self) -> bool:
        return self.digest[0] % 2 == 1


def changes() -> Iterator[Change]:
    """Return all plants of one framework, and the changes of ``guard.toml``."""
    site = os.pathsep.join(filter(None, (str(HERE / "planted/site"), os.environ.get("PYTHONPATH"))))
    for plant in PLANTS.values():
        env = {"DUALML_PLANTED": f"{BACKEND}:{plant.name}", "PYTHONPATH": site}
        yield Change(plant.name, plant.arm, True, plant.about, env=env)
    table = tomllib.loads((HERE / "guard.toml").read_text("utf-8"))
    for wrong, rows in ((True, table["wrong"]), (False, table["harmless"])):
        for row in rows:
            for arm in row["arms"]:
                settings = row.get("set", [])
                own = settings[arm] if isinstance(settings, dict) else settings
                yield Change(
                    row["name"],
                    arm,
                    wrong,
                    row["about"]["en"],
                    own,
                    row.get("words", ()),
                    row.get("env", {}),
                )


def run(change: Change | None, arm: str, out: Path) -> str:
    """Run an arm; return why it failed, or ""."""
    words = ["--backend", BACKEND, "--arm", arm, "--out", str(out), "--no-report", "--no-find"]
    if change is None or "--threads" not in change.words:
        words += ["--threads", "1"]
    if change is not None:
        words += [*change.words, *(w for s in change.set for w in ("--set", f"arms.{arm}.{s}"))]
    env = {**os.environ, **(change.env if change else {})}
    done = subprocess.run(
        [sys.executable, "-m", "dualml", "run", str(experiment_of(arm)), *words],
        capture_output=True,
        text=True,
        env=env,
        timeout=LIMIT,
        check=False,
    )
    return "" if done.returncode in (0, 3) else done.stderr[-300:] or done.stdout[-300:]


def base(arm: str, folder: Path) -> tuple[Path, str]:
    """Run the arm that its changes are compared with; return the folder, and why it failed, or
    ""."""
    out = folder / f"base-{arm}"
    with BASES:
        if arm not in FAILED:
            FAILED[arm] = run(None, arm, out)
    return out, FAILED[arm]


def losses(folder: Path, arm: str) -> list[float]:
    """Return the recorded losses of an arm."""
    return list(read_records(trial_folder(folder, (arm, BACKEND, 0)))["loss"].value)


def judge(change: Change, folder: Path) -> dict[str, Any]:
    """Return check → whether it refuses a change."""
    a, why = base(change.arm, folder)
    b = folder / f"{change.name}-{change.arm}"
    row = {
        "name": change.name,
        "arm": change.arm,
        "wrong": change.wrong,
        "about": change.about,
        "held_out": change.held_out,
    }
    if why := why or run(change, change.arm, b):
        shutil.rmtree(b, ignore_errors=True)
        return {**row, "failed": why}
    against = compare_runs(a, b)
    before, after = losses(a, change.arm), losses(b, change.arm)
    shutil.rmtree(b)
    printed = [[f"{x:.{DIGITS}g}" for x in side] for side in (before, after)]
    pair = against.pairs[0]
    return {
        **row,
        "verdict": against.verdict,
        "reason": pair.reason,
        "ratio": pair.ratio,
        "first": pair.judged.get("first_divergence"),
        "guard": not against.passed,
        "digits": printed[0] != printed[1],
        "tolerance": not abs(before[-1] - after[-1]) <= TOLERANCE,
    }


def table(rows: Sequence[dict[str, Any]], lang: str) -> str:
    """Return a table of the changes that each check judges correctly."""
    lines = [HEADS[lang], ["---", "---", "--:", "--:", "--:", "--:"]]
    for wrong, kind in ((True, "wrong"), (False, "harmless")):
        for held_out in (False, True):
            own = [
                r
                for r in rows
                if (r["wrong"], r["held_out"]) == (wrong, held_out) and "failed" not in r
            ]
            counts = [sum(r[check] == wrong for r in own) for check in CHECKS]
            cells = [RIGHT[lang][kind].format(n) for n in counts]
            lines.append([KINDS[lang][kind], HALVES[lang][held_out], str(len(own)), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("guard.json"))
    parser.add_argument("--markdown", type=Path, help="folder of loss-guard.md and its translation")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    known = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else []
    chosen = [c for c in changes() if not asked.only or c.name in asked.only]
    chosen.sort(key=lambda change: change.digest)  # a part of them is a sample of all
    done = {(row["name"], row["arm"]) for row in known}
    todo = [c for c in chosen if asked.only or (c.name, c.arm) not in done]
    with (
        tempfile.TemporaryDirectory(prefix="dualml-guard-") as folder,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        for row in pool.map(lambda change: judge(change, Path(folder)), todo):
            place = (row["name"], row["arm"])
            known = [*(r for r in known if (r["name"], r["arm"]) != place), row]
            asked.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
            print(*place, row.get("failed") or [row[c] for c in CHECKS], flush=True)
    for lang, name in (("en", "loss-guard.md"), ("zh", "loss-guard.zh.md")):
        if asked.markdown:
            page = asked.markdown / name
            block = f"{BEGIN}\n{table(known, lang)}\n{END}"
            page.write_text(replace_between(page.read_text("utf-8"), BEGIN, END, block), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
