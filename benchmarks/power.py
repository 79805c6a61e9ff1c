"""How far the rounding envelope can be trusted: does it cover what changes nothing but the
rounding, and how small a real difference is found?

    python benchmarks/power.py [--seeds N] [--out FILE] [--markdown docs]

First, the same small trials with other threads, orders of summation, instruction sets, kernels and
devices, each against the usual trial of the same framework. Second, planted errors of known size in
PyTorch against MindSpore, judged after 1, 10 and 50 updates. ``--from FILE`` writes the pages of an
earlier measurement.
"""

# ruff: noqa: E501 - the texts of the pages
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

Record = dict[str, Any]
Counts = dict[float, tuple[int, int]]

FRAMEWORKS = ("torch", "mindspore")
MARGIN = 10.0
#: The last layer with parameters of the model below.
OUTPUT = "fc2"
UPDATES = 50
HORIZONS = (1, 10, 50)
PHASES = ("forward", "loss", "gradient", "update", "state")
#: Seeds of every change of part 1; of the arms with several ranks.
CHANGE_SEEDS, RANK_SEEDS, RANK_UPDATES = 3, 1, 20
CHUNKS = (24, 8)
STRATEGIES = ("all_reduce", "ring", "tree")
RULES = {
    "adam": '{ name = "adam", lr = 0.001 }',
    "sgd": '{ name = "sgd", lr = 0.02 }',
}
HEAD = """name = "power"
model = "lenet"
loss = "cross_entropy"
[title]
en = "Power"
zh = "功效"
[data]
name = "digits"
train = 512
test = 64
[evaluation]
per_epoch = 1
early = []
train_samples = 64
[parity]
draws = {draws}
horizon = {horizon}
"""
#: Of the same framework: the group of a change, what it is called, and how it is made.
CHANGES: dict[str, list[tuple[str, str, Record]]] = {
    "torch": [
        ("threads", "2 threads", {"threads": 2}),
        ("threads", "4 threads", {"threads": 4}),
        ("isa", "ONEDNN_MAX_CPU_ISA=SSE41", {"env": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}),
        ("isa", "ATEN_CPU_CAPABILITY=default", {"env": {"ATEN_CPU_CAPABILITY": "default"}}),
        ("isa", "MKL_CBWR=COMPATIBLE", {"env": {"MKL_CBWR": "COMPATIBLE"}}),
        ("kernels", "torch.backends.mkldnn off", {"mkldnn": False}),
    ],
    "mindspore": [
        ("threads", "2 threads", {"threads": 2}),
        ("threads", "4 threads", {"threads": 4}),
        ("isa", "ONEDNN_MAX_CPU_ISA=DEFAULT", {"env": {"ONEDNN_MAX_CPU_ISA": "DEFAULT"}}),
        ("isa", "ONEDNN_MAX_CPU_ISA=SSE41", {"env": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}),
    ],
}
#: What is planted, in which arms, and the decades of its relative size δ.
PLANTS: dict[str, tuple[tuple[str, ...], tuple[int, int]]] = {
    "layer": (("adam", "sgd"), (-7, -2)),
    "gradient": (("adam", "sgd"), (-7, -2)),
    "rate": (("adam", "sgd"), (-7, -2)),
    "eps": (("adam",), (-3, 1)),
}


# Figures: pure functions.


def interval(found: int, of: int) -> tuple[float, float]:
    """Clopper–Pearson: the 95 % interval of a share, from ``found`` of ``of`` trials."""
    low = 0.0 if found == 0 else float(beta.ppf(0.025, found, of - found + 1))
    high = 1.0 if found == of else float(beta.ppf(0.975, found + 1, of - found))
    return low, high


def at_most(trials: int) -> float:
    """Upper 95 % bound of a share that none of ``trials`` showed, one-sided: about 3/n."""
    return 1.0 - float(0.05 ** (1.0 / trials))


def sizes(low: int, high: int) -> list[float]:
    """Half-decades from 10^low to 10^high."""
    found = [float(f"{first}e{power}") for power in range(low, high) for first in (1, 3)]
    return [*found, float(f"1e{high}")]


def always(counts: Counts) -> float | None:
    """The smallest size from which on every trial found the difference."""
    found = None
    for delta in sorted(counts, reverse=True):
        if counts[delta][0] < counts[delta][1]:
            break
        found = delta
    return found


def never(counts: Counts) -> float | None:
    """The largest size up to which no trial found it."""
    found = None
    for delta in sorted(counts):
        if counts[delta][0]:
            break
        found = delta
    return found


def cut(told: Any, horizon: int) -> Any:
    """The envelope file of the same trial with a shorter ``parity.horizon``."""
    if not isinstance(told, Mapping):
        return told
    short: Record = {}
    for key, value in told.items():
        if key == "loss":
            short[key] = value[:horizon]
        elif key == "tensors":
            short[key] = {k: w for k, w in value.items() if int(k.split("/")[1]) <= horizon}
        else:
            short[key] = cut(value, horizon)
    return short


def thresholds(files: Sequence[Record], margin: float = MARGIN) -> dict[str, dict[int, float]]:
    """Phase → traced update → margin × envelope there, the median over the tensors.

    Args:
        files: contents of the ``envelope.json`` of every backend of one arm and seed.
    """
    from dualml.parity.envelope import Envelope, believed
    from dualml.parity.pairs import FLOOR, reach, widest, widest_loss

    drawn = believed([Envelope(told) for told in files], OUTPUT)
    horizon = min(len(envelope.loss) for envelope in drawn)
    width_at, loss = widest(drawn, horizon), widest_loss(drawn, horizon)
    named: dict[tuple[str, int], list[str]] = {}
    for key in drawn[0].tensors:
        phase, at, tensor = key.split("/", 2)
        named.setdefault((phase, int(at)), []).append(tensor)
    found: dict[str, dict[int, float]] = {phase: {} for phase in PHASES}
    for step in sorted({at for _, at in named}):
        found["loss"][step] = margin * max(float(loss[min(reach(step), horizon) - 1]), FLOOR)
        for phase in PHASES:
            if mine := named.get((phase, step)):
                widths = [max(width_at(phase, tensor, step), FLOOR) for tensor in mine]
                found[phase][step] = margin * statistics.median(widths)
    return {phase: row for phase, row in found.items() if row}


def counts(
    plants: Sequence[Record], kind: str, arm: str, horizon: int, skip: Collection[int] = ()
) -> Counts:
    """Size → how many of how many trials were found, but for the seeds to ``skip``."""
    found: Counts = {}
    for row in plants:
        if (row["kind"], row["arm"]) == (kind, arm) and row.get("seed") not in skip:
            k, n = found.get(row["delta"], (0, 0))
            found[row["delta"]] = (k + bool(row["found"][str(horizon)]), n + 1)
    return found


# What a worker process does: one framework, one environment.


def work(job: Record) -> list[Record]:
    """All tasks of a job; rows."""
    from dualml.backend import backends
    from dualml.experiment.saved import restore
    from dualml.runner.ranks import Workshop
    from dualml.runner.worker import Runner

    if not job.get("mkldnn", True):
        import torch

        torch.backends.mkldnn.set_flags(False)
    run = Path(job["run"])
    plan = restore(run / "plan")
    backend = backends()[job["backend"]].create(job.get("device", "cpu"), job["threads"])
    runner = Runner(plan, Quiet())
    if job["task"] == "usual":
        for arm, seed in job["trials"]:
            folder = usual_folder(run, arm, job["backend"], seed)
            folder.mkdir(parents=True)
            told = {"arm": arm, "seed": seed, "checkpoint_every": 1e9}
            (folder / "job.json").write_text(json.dumps(told), "utf-8")
            runner.trial(folder, backend, None)
        return []
    from dualml.runner.trial import Trial
    from dualml.runner.worker import samples_of

    samples, workshop, rows = samples_of(plan), Workshop(), []
    for arm, seed in job["trials"]:
        trial = Trial(plan, arm, seed, backend, samples, run, Quiet(), 1e9, None, workshop)
        with_plants = job["task"] == "planted"
        rows += planted(run, trial, job["sizes"]) if with_plants else [changed(run, trial, job)]
    return rows


class Quiet:
    """Takes the signs of life of a trial."""

    def __call__(self, **event: Any) -> None:
        pass

    def send(self, event: Any) -> None:
        pass


def usual_folder(run: Path, arm: str, backend: str, seed: int) -> Path:
    return run / "trials" / arm / backend / f"seed{seed}"


def usual(run: Path, arm: str, backend: str, seed: int, horizon: int = UPDATES) -> Any:
    """The usual trial, read back as if its horizon had been this one."""
    from dualml.experiment.saved import restore
    from dualml.parity.trajectory import read_trajectory

    plan = restore(run / "plan")
    names = list(plan.spec_of(plan.experiment.arms[arm]).parameters())
    found = read_trajectory(usual_folder(run, arm, backend, seed), backend, names)
    return shortened(found, envelope_file(run, arm, backend, seed), horizon)


def usual_and_envelopes(
    run: Path, arm: str, backend: str, seed: int, horizon: int
) -> tuple[Any, list[Any]]:
    """The usual trial of a backend, and the envelopes of both: a verdict believes the two."""
    sides = {b: usual(run, arm, b, seed, horizon) for b in FRAMEWORKS}
    return sides[backend], [side.envelope for side in sides.values()]


def envelope_file(run: Path, arm: str, backend: str, seed: int) -> Record:
    path = usual_folder(run, arm, backend, seed) / "envelope.json"
    told: Record = json.loads(path.read_text("utf-8"))
    return told


def shortened(trajectory: Any, drawn: Record | None, horizon: int) -> Any:
    from dualml.parity.envelope import Envelope

    kept = {k: v for k, v in trajectory.tensors.items() if int(k.split("/")[1]) <= horizon}
    return replace(
        trajectory,
        losses=trajectory.losses[:horizon],
        tensors=kept,
        data={step: digest for step, digest in trajectory.data.items() if step <= horizon},
        envelope=None if drawn is None else Envelope(cut(drawn, horizon)),
    )


class Follower:
    """Runs a trial's updates and keeps what is judged, without files and evaluation."""

    def __init__(self, trial: Any) -> None:
        self.trial, self.step = trial, 0
        self.losses: list[float] = []
        self.tensors: Record = {}
        self.data: dict[int, str] = {}

    def to(self, last: int) -> Any:
        """The trajectory up to this update."""
        from dualml.parity.trajectory import Trajectory
        from dualml.runner.capture import after, before

        trial, training, lazy = self.trial, self.trial.training, []
        for step in range(self.step + 1, last + 1):
            batch, traced = trial.ranks.batch(step), step in trial.schedule.trace
            if traced:
                seen, self.data[step] = before(training, step, batch, trial.probe)
                self.tensors.update(seen)
            lazy.append(training.step(batch, step))
            if traced:
                self.tensors.update(after(training, step))
        self.step = last
        self.losses += [float(loss) for loss in trial.ranks.read(lazy)]
        held = training.weights()
        return Trajectory(
            trial.backend.name, np.array(self.losses), dict(self.tensors), dict(self.data), None,
            math.nan, math.nan, {name: held[name] for name in trial.spec.parameters()},
        )  # fmt: skip


def compared(a: Any, b: Any, envelopes: list[Any]) -> Record:
    """The verdict on two trajectories; ``all_draws``: were every draw believed."""
    from dualml.parity.envelope import Envelope
    from dualml.parity.pairs import compare

    found = compare(a, b, MARGIN, envelopes)
    bare = [
        Envelope({key: drawn.describe()[key] for key in ("draws", "loss", "tensors")})
        for drawn in envelopes
    ]
    naive = compare(a, b, MARGIN, bare)
    phases = found.get("phases", {})
    worst = max(phases, key=lambda phase: phases[phase]["ratio"], default=None)
    return {
        "verdict": found["verdict"],
        "reason": found["reason"],
        "ratio": found["evidence"].get("worst_ratio"),
        "same": all(told["max"] == 0 for told in phases.values()),
        "all_draws": {"verdict": naive["verdict"], "ratio": naive["evidence"].get("worst_ratio")},
        "first": found.get("first_divergence"),
        "at": [worst, phases[worst]["step"], phases[worst]["tensor"]] if worst else None,
    }


def changed(run: Path, trial: Any, job: Record) -> Record:
    """A changed trial against the usual one of the same framework."""
    arm = trial.arm_name.split("-")[0]
    base, drawn = usual_and_envelopes(run, arm, job["backend"], trial.seed, UPDATES)
    found = compared(base, Follower(trial).to(UPDATES), drawn)
    chunk = trial.arm_name.partition("-chunk")[2]
    return {
        "backend": job["backend"],
        "group": "order" if chunk else job["group"],
        "change": f"chunk = {chunk}" if chunk else job["change"],
        "arm": arm,
        "seed": trial.seed,
        **found,
    }


def planted(run: Path, trial: Any, wanted: Mapping[str, Sequence[float]]) -> list[Record]:
    """Errors of every kind and size in PyTorch, against the usual MindSpore."""
    from dualml.parity.pairs import compare

    arm, seed, rows = trial.arm_name, trial.seed, []
    sides = {h: [usual(run, arm, b, seed, h) for b in FRAMEWORKS] for h in HORIZONS}
    for kind, deltas in wanted.items():
        for delta in deltas:
            trial.restart(dict(trial.initial))
            undo = plant(trial.training, kind, delta, seed)
            follower, found = Follower(trial), dict[str, bool]()
            for horizon in HORIZONS:
                (torch_side, other), here = sides[horizon], follower.to(horizon)
                drawn = [torch_side.envelope, other.envelope]
                verdict = compare(other, here, MARGIN, drawn)["verdict"]
                found[str(horizon)] = verdict == "different"
                if horizon == 1 and found["1"]:  # update 1 is judged alike under every horizon
                    found |= dict.fromkeys(map(str, HORIZONS), True)
                    break
            undo()
            rows.append({"kind": kind, "arm": arm, "seed": seed, "delta": delta, "found": found})
    return rows


def plant(training: Any, kind: str, delta: float, seed: int) -> Callable[[], None]:
    """Put a relative error of this size into a PyTorch training; returns what takes it out."""
    import torch

    group = training.optimizer.param_groups[0]
    if kind in ("rate", "eps"):
        key = "lr" if kind == "rate" else "eps"
        right = group[key]
        group[key] = right * (1 + delta)
        return lambda: group.update({key: right})
    if kind == "layer":
        layer = training.network.get_submodule("fc1")
        return layer.register_forward_hook(lambda module, given, out: out * (1 + delta)).remove  # type: ignore[no-any-return]
    whole = type(training).backward

    def backward(part: Any, share: float) -> Any:
        loss = whole(training, part, share)
        draw = torch.Generator().manual_seed(1_000_003 * seed + training.now)
        for p in training.parameters.values():
            p.grad.mul_(1 + delta * torch.randn(p.shape, generator=draw))
        return loss

    training.backward = backward
    return lambda: delattr(training, "backward")


# The whole measurement.


def experiment(folder: Path) -> Path:
    """The file of the usual arms, and of those that sum a batch in other chunks."""
    text = HEAD.format(draws=3, horizon=UPDATES)
    for arm, rule in RULES.items():
        for chunk in (None, *CHUNKS):
            name = arm if chunk is None else f"{arm}-chunk{chunk}"
            text += f"[arms.{name}]\noptimizer = {rule}\nbatch_size = 32\nupdates = {UPDATES}\n"
            text += "" if chunk is None else f"chunk = {chunk}\n"
    path = folder / "power.toml"
    path.write_text(text, "utf-8")
    return path


def rank_experiment(folder: Path) -> Path:
    """The same with four ranks; the draws are those of the usual arms."""
    text = HEAD.format(draws=1, horizon=RANK_UPDATES)
    for arm, rule in RULES.items():
        for strategy in STRATEGIES:
            text += f"[arms.{arm}-{strategy}]\nworld_size = 4\noptimizer = {rule}\n"
            text += f"batch_size = 32\nupdates = {RANK_UPDATES}\n"
            text += f'aggregation = {{ strategy = "{strategy}" }}\n'
    path = folder / "power_ranks.toml"
    path.write_text(text, "utf-8")
    return path


def start(job: Record, folder: Path, number: int) -> list[Record]:
    """A worker's rows."""
    from dualml.backend import backends

    told, out = folder / f"job{number}.json", folder / f"rows{number}.json"
    told.write_text(json.dumps(job), "utf-8")
    env = {**os.environ, **backends()[job["backend"]].environ(job["threads"]), **job.get("env", {})}
    done = subprocess.run(
        [sys.executable, __file__, "--work", str(told), "--out", str(out)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"{job['backend']}, {job.get('change', job['task'])}: {done.stderr[-3000:]}"
        )
    print(f"done: {job['backend']} {job.get('change', job['task'])}", flush=True)
    rows: list[Record] = json.loads(out.read_text("utf-8"))
    return rows


def accelerators() -> list[tuple[str, str]]:
    """Devices that are there, of the framework that drives them."""
    found = [("torch", "cuda")] if Path("/dev/nvidia0").exists() else []
    return found + ([("mindspore", "ascend")] if Path("/dev/davinci0").exists() else [])


def change_jobs(run: Path, seeds: Sequence[int]) -> Iterator[Record]:
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
    """Four ranks in every order of summation against one, of the same framework."""
    from dualml.experiment.saved import restore
    from dualml.parity.trajectory import read_trajectory

    out = folder / "ranks"
    words = [
        sys.executable,
        "-m",
        "dualml",
        "run",
        str(rank_experiment(folder)),
        "--backend",
        "both",
    ]
    words += ["--seed", ",".join(map(str, range(RANK_SEEDS))), "--arm", "all", "--threads", "1"]
    words += ["--no-report", "--no-find", "--json", "--out", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"ranks: {done.stderr[-3000:]}")
    plan, rows = restore(out / "plan"), []
    names = list(plan.spec_of(plan.experiment.arms["adam-ring"]).parameters())
    for backend in FRAMEWORKS:
        for name in plan.experiment.arms:
            for seed in range(RANK_SEEDS):
                arm, strategy = name.split("-")
                base, drawn = usual_and_envelopes(run, arm, backend, seed, RANK_UPDATES)
                there = read_trajectory(usual_folder(out, name, backend, seed), backend, names)
                told = compared(base, shortened(there, None, RANK_UPDATES), drawn)
                rows.append({"backend": backend, "group": "ranks", "change": f"4 ranks, {strategy}",
                             "arm": arm, "seed": seed, **told})  # fmt: skip
    print("done: ranks", flush=True)
    return rows


def pairs(run: Path, seeds: Sequence[int]) -> list[Record]:
    """The usual PyTorch against the usual MindSpore: nothing is different."""
    rows = []
    for arm in RULES:
        for seed in seeds:
            for horizon in HORIZONS:
                sides = [usual(run, arm, backend, seed, horizon) for backend in FRAMEWORKS]
                told = compared(*sides, [side.envelope for side in sides])
                rows.append({"arm": arm, "seed": seed, "horizon": horizon, **told})
    return rows


def steps_and_thresholds(run: Path, seeds: Sequence[int]) -> Record:
    """For each arm: margin × envelope of every phase, and the error of the step size that shows at
    update 1: threshold × ‖θ‖ / ‖step‖ of the most sensitive tensor; medians over the seeds."""
    from dualml.experiment.saved import restore
    from dualml.parity.envelope import Envelope, believed
    from dualml.parity.pairs import FLOOR, widest

    plan, found = restore(run / "plan"), {}
    for arm in RULES:
        tables, rates = [], []
        for seed in seeds:
            files = [envelope_file(run, arm, backend, seed) for backend in FRAMEWORKS]
            tables.append(thresholds(files))
            width_at = widest(believed([Envelope(told) for told in files], OUTPUT), UPDATES)
            begin = plan.initial(seed, plan.experiment.arms[arm])
            end = usual(run, arm, "torch", seed, 1).tensors
            rates.append(min(
                MARGIN * max(width_at("update", name, 1), FLOOR) * float(np.linalg.norm(w))
                / float(np.linalg.norm(end[f"update/00000001/{name}"] - w))
                for name, w in begin.items()
            ))  # fmt: skip
        phases = {
            phase: {
                str(s): statistics.median(t[phase][s] for t in tables) for s in tables[0][phase]
            }
            for phase in tables[0]
        }
        found[arm] = {"phases": phases, "rate": statistics.median(rates)}
    return found


def measure(seeds: int, at_once: int, folder: Path) -> Iterator[Record]:
    """The figures so far, more each time."""
    from dualml.machine import cpu_model
    from dualml.runner.execute import Request, prepare

    run, numbers = folder / "run", list(range(seeds))
    few = numbers[:CHANGE_SEEDS]
    prepare(Request(lab=str(experiment(folder)), backend="both", out=run, threads=1,
                    seeds=numbers, arms=["all"]))  # fmt: skip
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


# The pages.

COMMAND = "python benchmarks/power.py --seeds {seeds} --markdown docs"
WORDS: dict[str, Record] = {
    "en": {
        "other": "[中文](power.zh.md)",
        "groups": {"order": "order of summation", "threads": "threads", "isa": "instruction set",
                   "kernels": "kernels", "ranks": "several ranks", "device": "device"},
        "kinds": {"layer": "output of the hidden layer fc1, times 1 + δ",
                  "gradient": "every gradient, times 1 + δ·noise (standard normal)",
                  "rate": "step size, times 1 + δ", "eps": "ε of Adam (1e-8), times 1 + δ"},
        "short": {"layer": "a layer's output", "gradient": "the gradient",
                  "rate": "the step size", "eps": "Adam's ε"},
        "rules": {"adam": "Adam", "sgd": "SGD"},
        "none": "–",
        "comma": ", ",
        "semicolon": "; ",
    },
    "zh": {
        "other": "[English](power.md)",
        "groups": {"order": "求和顺序", "threads": "线程数", "isa": "指令集", "kernels": "内核",
                   "ranks": "多进程", "device": "设备"},
        "kinds": {"layer": "隐藏层 fc1 的输出乘以 1 + δ", "gradient": "每个梯度乘以 1 + δ·噪声（标准正态）",
                  "rate": "步长乘以 1 + δ", "eps": "Adam 的 ε（1e-8）乘以 1 + δ"},
        "short": {"layer": "某层的输出", "gradient": "梯度", "rate": "步长", "eps": "Adam 的 ε"},
        "rules": {"adam": "Adam", "sgd": "SGD"},
        "none": "–",
        "comma": "，",
        "semicolon": "；",
    },
}  # fmt: skip
PAGES = {
    "en": """# Power: how small a difference dualml finds, and how often it is wrong

English · {other}

[Parity](parity.md) says how a verdict is made. This page says what one is worth, from trials that anyone
can repeat: LeNet on the embedded digits, batches of 32, {updates} updates, {draws} draws, margin {margin:g}.

{statements}

## What changes only the rounding

Each trial is changed in one way that leaves the mathematics alone, and compared with the usual trial (one
thread, one rank) of the *same* framework. The ratio is the largest of distance / envelope over all judged
tensors and updates; above {margin:g} the verdict is `different`, but for a lone kink. The envelope is that of
both frameworks, as in every verdict. "all draws" is the largest ratio if every draw is believed, also where the
order of the samples moves a tensor far more than the moved weights do (a verdict does not, from the update on at
which the order moves the loss or the output layer's gradient: `dualml.parity.envelope.believed`).
A trial that is the same bit for bit tests nothing: the framework does not use what was changed.

{changes}

{alarms}

{devices}

## How small a real difference is found

A difference passes as long as it is below margin × envelope everywhere it is judged. That is the theory; these
are the thresholds, as relative distances: the median over the tensors of a phase and over {seeds} seeds, the
envelope being that of both frameworks, from update 2 on the largest up to update 5t.

{thresholds}

An error δ of the step size moves the weights at update 1 by δ·‖Δθ‖, so it shows at update 1 from
δ = threshold·‖θ‖/‖Δθ‖ of the most sensitive tensor on: {rates}.

The experiment: an error of the relative size δ is planted into PyTorch and the trial compared with MindSpore's
unchanged one, judged over 1, 10 and 50 updates; {seeds} seeds for each size, {planted} planted trials.
"never" is the largest size up to which no trial was found, "always" the smallest from which on all were.
Seeds at which the unchanged programs are called `different` themselves (see below) are left out.

{power}

Found (k) of the trials (n), from the one size to the other:

{rates_table}

{seeds} of {seeds} found means a rate of {low:.0%} or more, none of {seeds} a rate of {high:.0%} or less (95 %,
Clopper–Pearson). A size that is found once, far below the others, is a kink that the error, like any rounding,
happened to meet. The draws that make the envelope are those of the two unchanged programs: the planted one
would draw almost the same.

## False alarms

{clean}

{alarms_of_pairs}

With n clean comparisons and no alarm the rate of false alarms is below 3/n with 95 % confidence: 3 % takes
100 comparisons, 0.3 % takes 1,000.

## What this does not say

One model, one small data set, one machine; kinks come more often in larger models and later updates. Errors
that are not relative, such as a lost sample, are in `benchmarks/planted`. "always" and "never" are of the
trials that were made.

Measured with `{command}`: torch {torch}, mindspore {mindspore}, {cpu}, {cores} cores.
`--seeds` sets the trials of each size. This page is written by the command.
""",
    "zh": """# 功效：dualml 能发现多小的差异，又有多少误报

{other} · 中文

[一致性](parity.zh.md)说明判定是怎样作出的；本页说明一个判定有多可靠，依据的是任何人都能重复的试验：内置手写数字上的
LeNet，批次 32，{updates} 次更新，{draws} 遍重做，裕度 {margin:g}。

{statements}

## 只改变舍入的改动

每次试验只作一处不影响数学结果的改动，并与*同一框架*的常规试验（单线程、单进程）比较。比值是所有被判定的张量与更新中
距离 / 包络的最大值；除孤立折点外，超过 {margin:g} 即判为 `different`。包络与一切判定一样取自两个框架。“采信全部重做”一列，是把每一遍重做都
计入包络时的最大比值，包括样本顺序对张量的影响远大于移动权重的那些（自样本顺序影响损失或输出层梯度的那次更新起，
判定不采信它们：`dualml.parity.envelope.believed`）。逐位相同的试验什么也没有检验：框架没有用到所改动的东西。

{changes}

{alarms}

{devices}

## 能发现多小的真实差异

只要差异在每个被判定之处都低于裕度 × 包络，它就会被放过——这是理论。下面是这些阈值（相对距离）：对一个阶段的各张量取
中位数，再对 {seeds} 个种子取中位数；包络取自两个框架，从第 2 次更新起用直到第 5t 次更新为止最大的包络。

{thresholds}

步长的误差 δ 使第 1 次更新后的权重移动 δ·‖Δθ‖，因此当 δ 达到最敏感张量的 阈值·‖θ‖/‖Δθ‖ 时，第 1 次更新就会显现：{rates}。

实验：在 PyTorch 中植入相对大小为 δ 的误差，与未改动的 MindSpore 比较，分别判定 1、10、50 次更新；每个大小
{seeds} 个种子，共 {planted} 次植入试验。“从未”是指直到这个大小为止没有一次被发现，“总是”是指从这个大小起每次都被发现。
连未改动的程序也被判为 `different` 的种子（见下文）不计在内。

{power}

介于两者之间，各大小下 n 次试验中被发现的次数 k：

{rates_table}

{seeds} 次全被发现，表示发现率不低于 {low:.0%}；{seeds} 次全未发现，表示发现率不高于 {high:.0%}（95 %，Clopper–Pearson）。
远小于其他大小却偶尔被发现一次的，是误差像任何舍入一样碰巧遇到的折点。包络取自两个未改动的程序；被植入误差的程序自己重做的结果与之几乎相同。

## 误报

{clean}

{alarms_of_pairs}

n 次无差异的比较中没有一次误报，则以 95 % 的置信度，误报率低于 3/n：要说明低于 3 % 需要 100 次比较，低于 0.3 % 需要 1000 次。

## 本页没有说明的

只有一个模型、一个小数据集、一台机器；模型更大、更新更靠后时，折点更常出现。不是相对误差的错误（例如丢失一个样本）见
`benchmarks/planted`。“总是”与“从未”只就所做的试验而言。

以 `{command}` 测得：torch {torch}、mindspore {mindspore}、{cpu}、{cores} 核。
`--seeds` 设定每个大小的试验次数。本页由该命令写成。
""",
}
TEXTS: dict[str, dict[str, str]] = {
    "en": {
        "changes_head": "what|framework|change|trials|bit for bit the same|median ratio|"
        "largest|largest, all draws|`different`",
        "covered": "- Of {n} trials in which only the rounding was changed ({same} more stayed the same "
        "bit for bit), called `different`: {outside}. The ratio of distance to envelope is "
        "{median} in the median and {largest} at most in the others; the margin is {margin:g}. "
        "With all draws believed, the largest ratio of all is {bare}.",
        "found": "- {when}, relative errors of this size and more were always found: {listed}.",
        "item": "{what} {size}",
        "passes": "- Over 50 updates, relative errors up to this size were never found: {listed}.",
        "when1": "At update 1",
        "when50": "Judged over 50 updates",
        "alarm_rate": "- Of {n} comparisons of the unchanged frameworks over 50 updates, "
        "called `different`: {k}; a rate of false alarms of {bound:.1%} at most (95 %).",
        "alarm": "**Outside the margin:** {backend}, {change}, {arm}, seed {seed}: first at update "
        "{step}, {phase}, `{tensor}`; ratio {ratio}, with all draws {bare}.",
        "alarm_why": "Where the ratio with all draws is inside the margin, this is a kink: draws "
        "that shuffle the samples met the same one, but "
        "the rule that believes a shuffled draw only where the moved weights alone do something "
        "similar sets them aside. It is a false alarm of that rule.",
        "no_alarm": "No change left the margin.",
        "no_device": "No accelerator was there: nothing is said about CUDA and Ascend. Where one "
        "is, the command compares it with the CPU.",
        "device": "Devices that were there: {listed}.",
        "phase_head": "rule|phase",
        "update": "update {s}",
        "rate": "{rule} {size}",
        "power_head": "error|rule|never, 1 update|always, 1|never, 10|always, 10|never, 50|always, 50",
        "table_head": "error|rule|updates",
        "clean": "The unchanged frameworks against each other, {n} comparisons over 50 updates "
        "(2 rules, {seeds} seeds): {k} `different`, largest ratio {largest}. Upper 95 % bound of "
        "the rate of false alarms: {bound:.1%}. Together with the {m} changed trials above that "
        "were not the same bit for bit: {kk} of {nn}; 95 % interval {low:.1%} to {high:.1%} (a "
        "seed's trials are not independent of each other).",
    },
    "zh": {
        "changes_head": "类别|框架|改动|试验数|逐位相同|比值中位数|最大值|最大值（采信全部重做）|`different`",
        "covered": "- 在 {n} 次只改变舍入的试验中（另有 {same} 次逐位相同），{outside} 次被判为 `different`。距离与包络之比的中位数为 "
        "{median}，其余各次的最大值为 {largest}；裕度为 {margin:g}。若采信全部重做，全体的最大比值为 {bare}。",
        "found": "- {when}，达到以下大小的相对误差每次都被发现：{listed}。",
        "item": "{what} {size}",
        "passes": "- 判定 50 次更新，不超过以下大小的相对误差从未被发现：{listed}。",
        "when1": "第 1 次更新时",
        "when50": "判定 50 次更新时",
        "alarm_rate": "- 未改动的两个框架之间 {n} 次比较（50 次更新）中，{k} 次判为 `different`：误报率至多 {bound:.1%}（95 %）。",
        "alarm": "**超出裕度：**{backend}，{change}，{arm}，种子 {seed}：最早在第 {step} 次更新，{phase}，`{tensor}`；"
        "比值 {ratio}，采信全部重做时为 {bare}。",
        "alarm_why": "采信全部重做时比值在裕度之内的，是折点：打乱样本的重做也遇到了同样的折点，但判定规则只在单凭移动权重也有相近"
        "影响时才采信打乱顺序的重做，于是把它排除了。这是该规则的误报。",
        "no_alarm": "没有一种改动超出裕度。",
        "no_device": "测量时没有加速器：本页对 CUDA 与昇腾不作任何说明。若有加速器，该命令会将其与 CPU 比较。",
        "device": "当时有的设备：{listed}。",
        "phase_head": "规则|阶段",
        "update": "第 {s} 次更新",
        "rate": "{rule} {size}",
        "power_head": "误差|规则|从未，1 次更新|总是，1|从未，10|总是，10|从未，50|总是，50",
        "table_head": "误差|规则|更新",
        "clean": "未改动的两个框架相互比较，{n} 次，各 50 次更新（2 种规则、{seeds} 个种子）：{k} 次 `different`，最大比值 {largest}。"
        "误报率的 95 % 上界：{bound:.1%}。连同上面并非逐位相同的 {m} 次改动试验：{nn} 次中 {kk} 次；95 % 区间 {low:.1%} 至 "
        "{high:.1%}（同一种子的各次试验并不相互独立）。",
    },
}


def told(value: float | None) -> str:
    """Two digits at most: 3e-6, 1.2e-7, 0.85, 16000."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1e6:
        return f"{value:.2f}".rstrip("0").rstrip(".") if value < 100 else f"{value:,.0f}"
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}"


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def alarm(row: Record, texts: Mapping[str, str]) -> str:
    bare = told(row["all_draws"]["ratio"])
    return texts["alarm"].format(**row | row["first"] | {"ratio": told(row["ratio"])}, bare=bare)


def page(found: Record, lang: str) -> str:
    """One page of the figures."""
    words, texts, plants = WORDS[lang], TEXTS[lang], found["plants"]
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for row in found["changes"]:
        groups.setdefault((row["group"], row["backend"], row["change"]), []).append(row)
    order = list(words["groups"])
    listed = sorted(groups.items(), key=lambda one: (order.index(one[0][0]), one[0][1] != "torch"))
    changes = []
    for (group, backend, change), mine in listed:
        ratios, bare = [r["ratio"] for r in mine], [r["all_draws"]["ratio"] for r in mine]
        wrong = sum(r["verdict"] == "different" for r in mine)
        same = sum(r["same"] for r in mine)
        changes.append([words["groups"][group], backend, f"`{change}`", str(len(mine)), str(same),
                        told(statistics.median(ratios)), told(max(ratios)), told(max(bare)),
                        str(wrong)])  # fmt: skip
    moved = [r for r in found["changes"] if not r["same"]]
    outside = [r for r in moved if r["verdict"] == "different"]
    clean = [r for r in found["clean"] if r["horizon"] == UPDATES]
    false = [r for r in clean if r["verdict"] == "different"]
    wrong = len(false)
    alarms = [alarm(r, texts) for r in outside] or [texts["no_alarm"]]
    alarms_of_pairs = [
        alarm({**r, "backend": "torch – mindspore", "change": "–"}, texts) for r in false
    ]
    if any(r["all_draws"]["verdict"] == "equal" for r in [*outside, *false]):
        alarms_of_pairs.append(texts["alarm_why"])
    skip = {
        (arm, horizon): {r["seed"] for r in found["clean"]
                         if (r["arm"], r["horizon"], r["verdict"]) == (arm, horizon, "different")}
        for arm in RULES for horizon in HORIZONS
    }  # fmt: skip

    def of(kind: str, arm: str, horizon: int) -> Counts:
        return counts(plants, kind, arm, horizon, skip[arm, horizon])

    combos = [(kind, arm) for kind, (arms, _) in PLANTS.items() for arm in arms]

    def limits_of(limit: Callable[[Counts], float | None], horizon: int) -> str:
        """Each kind with its sizes, once where both rules have the same."""
        items = []
        for kind, (arms, _) in PLANTS.items():
            known = {arm: told(limit(of(kind, arm, horizon))) for arm in arms}
            size = " / ".join(
                dict.fromkeys(known.values())
                if len(set(known.values())) == 1
                else [f"{value} ({words['rules'][arm]})" for arm, value in known.items()]
            )
            items.append(texts["item"].format(size=size, what=words["short"][kind]))
        return str(words["semicolon"].join(items))

    statements = [
        texts["covered"].format(
            n=len(moved), same=len(found["changes"]) - len(moved), outside=len(outside),
            median=told(statistics.median(r["ratio"] for r in moved)), margin=MARGIN,
            largest=told(max(r["ratio"] for r in moved if r not in outside)),
            bare=told(max(r["all_draws"]["ratio"] for r in moved)),
        )
    ]  # fmt: skip
    for horizon in (1, 50):
        listed_sizes = limits_of(always, horizon)
        statements.append(texts["found"].format(when=texts[f"when{horizon}"], listed=listed_sizes))
    statements.append(texts["passes"].format(listed=limits_of(never, 50)))
    high = interval(wrong, len(clean))[1] if wrong else at_most(len(clean))
    statements.append(texts["alarm_rate"].format(n=len(clean), k=wrong, bound=high))
    kk, nn = wrong + len(outside), len(clean) + len(moved)
    all_low, all_high = interval(kk, nn)
    steps = list(next(iter(found["thresholds"].values()))["phases"]["loss"])
    limits = [
        [words["rules"][arm], f"`{phase}`", *(told(row[s]) for s in steps)]
        for arm, one in found["thresholds"].items()
        for phase, row in one["phases"].items()
    ]
    power, by_size = [], []
    for kind, arm in combos:
        name = [words["kinds"][kind], words["rules"][arm]]
        cells = [[told(f(of(kind, arm, h))) for f in (never, always)] for h in HORIZONS]
        power.append([*name, *(cell for pair in cells for cell in pair)])
        for horizon in HORIZONS:
            mine = of(kind, arm, horizon)
            least, most = never(mine) or 0.0, always(mine) or math.inf
            shown = [
                f"{told(d)}:&nbsp;{k}/{n}"
                for d, (k, n) in sorted(mine.items())
                if least <= d <= most
            ]
            by_size.append([words["short"][kind], name[1], str(horizon), " ".join(shown)])
    seeds = found["seeds"]
    return PAGES[lang].format(
        other=words["other"], updates=UPDATES, draws=3, margin=MARGIN, seeds=seeds,
        statements="\n".join(statements),
        changes=table(texts["changes_head"], changes), alarms="\n\n".join(alarms),
        alarms_of_pairs="\n\n".join(alarms_of_pairs), devices=texts["device"].format(listed=words["comma"].join(found["devices"]))
        if found["devices"] else texts["no_device"],
        thresholds=table("|".join([texts["phase_head"], *(texts["update"].format(s=s) for s in steps)]),
                         limits),
        rates=words["comma"].join(
            texts["rate"].format(rule=words["rules"][arm], size=told(one["rate"]))
            for arm, one in found["thresholds"].items()
        ),
        planted=len(plants), power=table(texts["power_head"], power),
        rates_table=table(f"{texts['table_head']}|δ: k/n", by_size),
        low=interval(seeds, seeds)[0], high=interval(0, seeds)[1],
        clean=texts["clean"].format(
            n=len(clean), seeds=seeds, k=wrong, largest=told(max(r["ratio"] for r in clean)),
            bound=high, m=len(moved), kk=kk, nn=nn, low=all_low, high=all_high,
        ),
        command=COMMAND.format(seeds=seeds), **found["versions"],
        cpu=found["cpu"], cores=found["cores"],
    )  # fmt: skip


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
        for lang, name in (("en", "power.md"), ("zh", "power.zh.md")):
            (asked.markdown / name).write_text(page(found, lang), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
