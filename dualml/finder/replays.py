"""The replays of both sides and of the referee: from which states, and in which processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from dualml.backend import BackendInfo
from dualml.errors import TrialError, UserError
from dualml.experiment.plan import Plan
from dualml.files import write_bytes, write_json
from dualml.finder.replay import flatten, steps_of
from dualml.finder.scene import REFEREE, Scene, read_side, read_states
from dualml.launch.supervise import Launch, died, last_lines, supervise
from dualml.parity.trajectory import Trajectory, read_trajectory
from dualml.runner.folder import RunFolder

#: Seconds a replay may take, and be silent.
LIMIT, SILENCE = 900.0, 180.0


@dataclass(frozen=True, kw_only=True)
class Session:
    """What replays need: the run, its plan, and how to start each backend.

    Attributes:
        environs: backend → environment variables of its workers.
        progress: told what is being done.
    """

    folder: RunFolder
    plan: Plan
    infos: Mapping[str, BackendInfo]
    environs: Mapping[str, Mapping[str, str]]
    progress: Callable[[str], None] = lambda text: None


def replayed(
    session: Session,
    arm: str,
    seed: int,
    sides: Sequence[str],
    comparison: Mapping[str, Any],
    folder: Path,
) -> Scene:
    """The replays of the referee and of both sides."""
    from dualml.runner.worker import samples_of

    after, start, first = common_state(session, arm, seed, comparison)
    updates = session.plan.schedule(session.plan.experiment.arms[arm], seed).updates
    steps = list(steps_of(after, first, updates))
    write_bytes(folder / "start.safetensors", save(flatten(start)))
    for backend in (REFEREE, *sides):
        session.progress(f"{backend} {arm}")
        run_replay(session, backend, arm, seed, steps, folder)
    size = session.plan.experiment.arms[arm].world_size
    samples = samples_of(session.plan)
    features = session.plan.features(session.plan.experiment.arms[arm], seed, samples.train_x)
    return Scene(
        session.plan,
        arm,
        seed,
        features,
        samples.train_y,
        read_states(folder),
        {name: read_side(folder / name, name, size) for name in (REFEREE, *sides)},
        steps,
    )


def common_state(
    session: Session, arm_name: str, seed: int, comparison: Mapping[str, Any]
) -> tuple[int, dict[int, Any], int]:
    """The last update after which both sides are known to agree, the states to start from (before
    update 1, and before the one after it), and the update at which they were seen to part."""
    plan, arm = session.plan, session.plan.experiment.arms[arm_name]
    initial = plan.initial(seed, arm)
    fresh = arm.rule.init({name: w.astype(np.float64) for name, w in initial.items()})
    start: dict[int, Any] = {1: (initial, fresh)}
    divergence = comparison.get("first_divergence") or {"step": 1}
    first, after = max(int(divergence["step"]), 1), 0
    trajectory = recorded(session, arm_name, seed, comparison["a"])
    alike = arm.aggregation.of == "gradients" and trajectory is not None  # else ranks may differ
    if trajectory is not None and alike and first > 4:
        after = max((s for s in trajectory.steps() if s < first), default=0)
    if after > 1:
        assert trajectory is not None
        begin = f"update/{after:08d}/"
        weights = {k[len(begin) :]: a for k, a in trajectory.tensors.items() if k.startswith(begin)}
        slots: dict[str, Any] = {}
        begin = f"state/{after:08d}/"
        for key, array in trajectory.tensors.items():
            if key.startswith(begin):
                slot, _, name = key[len(begin) :].partition("/")
                slots.setdefault(slot, {})[name] = array
        start[after + 1] = (weights, slots)
        return after, start, first
    return 0, start, first


def recorded(session: Session, arm: str, seed: int, backend: str) -> Trajectory | None:
    """A trial of the run, None where it cannot be read."""
    spec = session.plan.spec_of(session.plan.experiment.arms[arm])
    trial = {"arm": arm, "seed": seed, "backend": backend}
    try:
        return read_trajectory(session.folder.trial_folder(trial), backend, list(spec.parameters()))
    except UserError:
        return None


def run_replay(
    session: Session, backend: str, arm: str, seed: int, steps: Sequence[int], folder: Path
) -> None:
    """One backend's replay in processes of its own; leaves a folder of its name.

    Raises:
        UserError: the backend is not installed here.
        TrialError: a rank failed.
    """
    info = session.infos.get(backend)
    if info is None or not info.installed():
        how = f"; install it with: {info.install}" if info else ""
        raise UserError(f"the replay needs backend {backend!r}, which is not installed{how}")
    told, options = session.plan.experiment.arms[arm], session.folder.run["options"]
    threads = told.cores or options["threads"]
    several = told.world_size > 1 and info.ranks == "processes"
    if several and not told.cores and not options.get("threads_asked"):
        threads = max(1, threads // told.world_size)
    place = folder / f"{backend}.job"
    place.mkdir()
    for name in ("start.safetensors", "states.safetensors"):
        if (folder / name).exists():
            (place / name).symlink_to(folder / name)
    job = {
        "run": str(session.folder.path.resolve()), "backend": backend, "arm": arm, "seed": seed,
        "steps": list(steps), "leads": backend == REFEREE, "out": f"../{backend}",
        "device": options["device"] if backend != REFEREE else "auto", "threads": threads,
        "cores": told.cores, "rendezvous": options.get("rendezvous", "auto"), "key": "find",
        "check": False,
    }  # fmt: skip
    write_json(place / "job.json", job)
    environ = info.environ(threads) if told.cores or several else session.environs[backend]
    words = [sys.executable, "-m", "dualml.finder.worker", str(place)]
    count = told.world_size if info.ranks == "processes" else 1
    launches = [
        Launch([*words, str(rank)], environ, place / f"rank{rank}.log") for rank in range(count)
    ]
    ended = supervise(launches, lambda rank, event: None, limit=LIMIT, silence=SILENCE)
    if ended.code or ended.reason:
        result = ended.results.get(ended.rank, {})
        why = ended.reason or result.get("reason") or died(ended.code)
        lines = "" if result else "; ".join(["", *last_lines(place / f"rank{ended.rank}.log")[-2:]])
        raise TrialError(f"the replay of {backend} failed on rank {ended.rank}: {why}{lines}")
    if backend == REFEREE:
        (place / "states.safetensors").rename(folder / "states.safetensors")
