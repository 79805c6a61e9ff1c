"""Measure how far the rounding envelope can be trusted: whether it covers changes that only round,
and how small a real difference it detects.

    python benchmarks/power/run.py [--seeds N] [--out FILE] [--markdown docs]

First part: the same small trials with other thread counts, summation orders, instruction sets,
kernels and devices, each compared with the usual trial of the same framework. Second part: errors
of known size planted into PyTorch, compared with MindSpore, and judged after 1, 10 and 50 updates.
``--from FILE`` writes the pages of an earlier measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from power.figures import sizes, thresholds  # noqa: E402
from power.pages import write  # noqa: E402
from power.settings import (  # noqa: E402
    CHANGE_SEEDS,
    CHANGES,
    CHUNKS,
    FRAMEWORKS,
    HORIZONS,
    MARGIN,
    OUTPUT,
    PLANTS,
    RANK_SEEDS,
    RANK_UPDATES,
    RULES,
    UPDATES,
    Record,
    experiment,
    rank_experiment,
)
from power.trials import (  # noqa: E402
    compared,
    envelope_file,
    shortened,
    usual,
    usual_and_envelopes,
    usual_folder,
)
from power.work import work  # noqa: E402


def start(job: Record, folder: Path, number: int) -> list[Record]:
    """Start a worker and return its rows."""
    from dualml.backend import backends

    told, out = folder / f"job{number}.json", folder / f"rows{number}.json"
    told.write_text(json.dumps(job), "utf-8")
    env = {**os.environ, **backends()[job["backend"]].environ(job["threads"]), **job.get("env", {})}
    done = subprocess.run(
        [sys.executable, __file__, "--work", str(told), "--out", str(out)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"{job['backend']}, {job.get('change', job['task'])}: {done.stderr[-3000:]}"
        )
    print(f"done: {job['backend']} {job.get('change', job['task'])}", flush=True)
    rows: list[Record] = json.loads(out.read_text("utf-8"))
    return rows


def accelerators() -> list[tuple[str, str]]:
    """Return the available devices, by the framework that uses them."""
    found = [("torch", "cuda")] if Path("/dev/nvidia0").exists() else []
    return found + ([("mindspore", "ascend")] if Path("/dev/davinci0").exists() else [])


def change_jobs(run: Path, seeds: Sequence[int]) -> Iterator[Record]:
    """Yield the jobs of all changes that only round."""
    trials = [[arm, seed] for arm in RULES for seed in seeds]
    chunked = [[f"{arm}-chunk{chunk}", s] for arm in RULES for chunk in CHUNKS for s in seeds]
    for backend, listed in CHANGES.items():
        common = {"task": "changed", "run": str(run), "backend": backend, "threads": 1}
        yield {**common, "group": "order", "change": "chunks", "trials": chunked}
        for group, change, how in listed:
            yield {**common, "group": group, "change": change, "trials": trials, **how}
        for name, device in accelerators():
            if name == backend:
                told = {"group": "device", "change": device, "device": device}
                yield {**common, **told, "trials": trials}


def ranks(run: Path, folder: Path) -> list[Record]:
    """Compare four ranks in every order of summation with one rank of the same framework."""
    from dualml.experiment.store.plan import restore_plan
    from dualml.experiment.store.trajectory import read_trajectory

    out = folder / "ranks"
    words = [sys.executable, "-m", "dualml", "run", str(rank_experiment(folder))]
    words += ["--backend", "both"]
    words += ["--seed", ",".join(map(str, range(RANK_SEEDS))), "--arm", "all", "--threads", "1"]
    words += ["--no-report", "--no-find", "--json", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"ranks: {done.stderr[-3000:]}")
    plan, rows = restore_plan(out / "plan"), []
    shapes = plan.spec_of(plan.experiment.arms["adam-ring"]).parameters()
    for backend in FRAMEWORKS:
        for name in plan.experiment.arms:
            for seed in range(RANK_SEEDS):
                arm, strategy = name.split("-")
                base, drawn = usual_and_envelopes(run, arm, backend, seed, RANK_UPDATES)
                there = read_trajectory(usual_folder(out, name, backend, seed), backend, shapes)
                told = compared(base, shortened(there, None, RANK_UPDATES), drawn)
                rows.append(
                    {
                        "backend": backend,
                        "group": "ranks",
                        "change": f"4 ranks, {strategy}",
                        "arm": arm,
                        "seed": seed,
                        **told,
                    }
                )
    print("done: ranks", flush=True)
    return rows


def pairs(run: Path, seeds: Sequence[int]) -> list[Record]:
    """Compare the usual PyTorch with the usual MindSpore, between which nothing differs."""
    rows = []
    for arm in RULES:
        for seed in seeds:
            for horizon in HORIZONS:
                sides = [usual(run, arm, backend, seed, horizon) for backend in FRAMEWORKS]
                told = compared(*sides, [side.envelope for side in sides])
                rows.append({"arm": arm, "seed": seed, "horizon": horizon, **told})
    return rows


def steps_and_thresholds(run: Path, seeds: Sequence[int]) -> Record:
    """Return, for each arm, margin × envelope of every phase, and the step-size error that shows at
    update 1: threshold × ‖θ‖ / ‖step‖ of the most sensitive tensor; medians over the seeds."""
    from dualml.experiment.store.envelope import Envelope
    from dualml.experiment.store.plan import restore_plan
    from dualml.parity.envelope import robust_envelopes
    from dualml.parity.places import FLOOR, max_envelope

    plan, found = restore_plan(run / "plan"), {}
    for arm in RULES:
        tables, rates = [], []
        for seed in seeds:
            files = [envelope_file(run, arm, backend, seed) for backend in FRAMEWORKS]
            tables.append(thresholds(files))
            drawn = robust_envelopes([Envelope.from_content(file) for file in files], OUTPUT)
            width_at = max_envelope(drawn, UPDATES)
            begin = plan.initial(seed, plan.experiment.arms[arm])
            end = usual(run, arm, "torch", seed, 1).tensors
            rates.append(
                min(
                    MARGIN
                    * max(width_at("update", name, 1), FLOOR)
                    * float(np.linalg.norm(w))
                    / float(np.linalg.norm(end[f"update/00000001/{name}"] - w))
                    for name, w in begin.items()
                )
            )
        phases = {
            phase: {
                str(s): statistics.median(t[phase][s] for t in tables) for s in tables[0][phase]
            }
            for phase in tables[0]
        }
        found[arm] = {"phases": phases, "rate": statistics.median(rates)}
    return found


def measure(seeds: int, at_once: int, folder: Path) -> Iterator[Record]:
    """Measure everything, and write the figures after each step."""
    from dualml.common.machine import cpu_model
    from dualml.runner.request import RunRequest
    from dualml.runner.session.prepare import freeze_plan

    run, numbers = folder / "run", list(range(seeds))
    few = numbers[:CHANGE_SEEDS]
    freeze_plan(
        RunRequest(
            lab=str(experiment(folder)),
            backend="both",
            out=run,
            threads=1,
            seeds=numbers,
            arms=["all"],
        )
    )
    trials = [[arm, seed] for arm in RULES for seed in numbers]
    common = {"run": str(run), "threads": 1}
    with ThreadPoolExecutor(at_once) as pool:
        first = [{"task": "usual", "backend": b, "trials": trials, **common} for b in FRAMEWORKS]
        list(pool.map(lambda n: start(first[n], folder, n), range(len(first))))
        jobs = []
        for arm in RULES:
            wanted = {
                kind: sizes(*decades) for kind, (arms, decades) in PLANTS.items() if arm in arms
            }
            mine = [[arm, seed] for seed in numbers]
            jobs.append(
                {"task": "planted", "backend": "torch", "trials": mine, "sizes": wanted, **common}
            )
        jobs += change_jobs(run, few)
        begun = [pool.submit(start, job, folder, n) for n, job in enumerate(jobs, start=2)]
        clean, limits = pairs(run, numbers), steps_and_thresholds(run, numbers)
        rows = [row for one in begun for row in one.result()]
    found = {
        "seeds": seeds,
        "versions": {name: version(name) for name in FRAMEWORKS},
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "devices": [device for _, device in accelerators()],
        "thresholds": limits,
        "clean": clean,
        "plants": [r for r in rows if "kind" in r],
        "changes": [r for r in rows if "change" in r],
    }
    yield found
    yield {**found, "changes": found["changes"] + ranks(run, folder)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8, help="of every planted error")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="at once")
    parser.add_argument("--out", type=Path, default=Path("power.json"))
    parser.add_argument("--markdown", type=Path, help="folder for power.md and power.zh.md")
    parser.add_argument(
        "--from", dest="source", type=Path, help="figures of an earlier measurement"
    )
    parser.add_argument("--folder", type=Path, help="where the trials are kept; default: nowhere")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        rows = work(json.loads(asked.work.read_text("utf-8")))
        asked.out.write_text(json.dumps(rows), "utf-8")
        return 0
    if asked.source:
        found = json.loads(asked.source.read_text("utf-8"))
    else:
        with tempfile.TemporaryDirectory(prefix="dualml-power-") as made:
            for found in measure(asked.seeds, asked.jobs, asked.folder or Path(made)):
                asked.out.write_text(json.dumps(found, indent=1), "utf-8")
    if asked.markdown:
        write(found, asked.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
