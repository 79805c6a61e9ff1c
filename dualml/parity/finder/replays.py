"""Replays of both backends and the reference: their initial states, and the processes that run
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo, TrainingSpec
from dualml.common.errors import TrialError, UserError
from dualml.experiment.plan import Plan
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.replays import (
    REPLAY_JOB,
    START,
    STATES,
    ReplayJob,
    job_folder,
    read_replay,
)
from dualml.experiment.store.trajectory import Trajectory, read_trajectory
from dualml.experiment.store.trial import log_path
from dualml.launch.supervise import describe_exit, last_lines
from dualml.launch.training import (
    REPLAY,
    TrainingRanks,
    describe_process,
    share_cores,
    start_and_train,
)
from dualml.parity.finder.context import REFERENCE, ReplayContext

#: Time limits of a replay in seconds: in total, and without output.
LIMIT, SILENCE = 900.0, 180.0


@dataclass(frozen=True, kw_only=True)
class ReplaySession:
    """Environment of the replays: the run, its plan, and how to start each backend.

    Attributes:
        folder, plan: folder and plan of the run.
        infos: backend → its description.
        environs: backend → environment variables of its workers.
        progress: called with a text about the current work.
    """

    folder: RunFolder
    plan: Plan
    infos: Mapping[str, BackendInfo]
    environs: Mapping[str, Mapping[str, str]]
    progress: Callable[[str], None] = lambda text: None


def run_replays(
    session: ReplaySession, sides: Sequence[str], comparison: Mapping[str, Any], folder: Path
) -> ReplayContext:
    """Run the replays of the reference and of ``sides`` for a comparison, and load their results.

    Args:
        sides: names of the backends.
        comparison: an entry of ``parity.json`` with arm, seed and first divergence.
        folder: an existing folder for their files.

    Raises:
        UserError: a backend is not installed here.
        TrialError: a rank failed.
    """
    from dualml.experiment.samples import load_samples

    arm, seed = comparison["arm"], comparison["seed"]
    samples, settings = load_samples(session.plan), session.plan.experiment.arms[arm]
    recipe = session.plan.training_spec(settings, seed, samples.train_x, samples.train_y)
    after, start, first = find_common_state(session, arm, recipe, comparison)
    steps = list(steps_to_replay(after, first, recipe.updates))
    START.write_states(folder, start)
    for backend in (REFERENCE, *sides):
        session.progress(f"{backend} {arm}")
        run_replay(session, backend, arm, seed, steps, folder)
    size = settings.world_size
    return ReplayContext(
        session.plan,
        arm,
        recipe,
        STATES.read_states(folder),
        {name: read_replay(folder, name, size) for name in (REFERENCE, *sides)},
        steps,
    )


def find_common_state(
    session: ReplaySession, arm_name: str, recipe: TrainingSpec, comparison: Mapping[str, Any]
) -> tuple[int, dict[int, Any], int]:
    """Find the last update after which both sides are known to agree.

    Returns:
        That update, 0 if only the initial state is known to agree (always for a difference within
        the first four updates, or where ranks aggregate anything but gradients); update → (weights,
        optimizer state) before it, for update 1 and for the one after the common state; and the
        update at which the sides were first seen to differ.
    """
    arm = session.plan.experiment.arms[arm_name]
    start: dict[int, Any] = {1: (recipe.weights, recipe.initial_state())}
    first = max(int((comparison.get("first_divergence") or {"step": 1})["step"]), 1)
    trajectory = load_trajectory(session, arm_name, recipe.seed, comparison["a"])
    if trajectory is None or arm.aggregation.of != "gradients" or first <= 4:
        return 0, start, first  # ranks that average parameters may differ
    after = max((s for s in trajectory.steps() if s < first), default=0)
    if after <= 1:
        return 0, start, first
    kept: dict[str, dict[str, Any]] = {"update": {}, "state": {}}
    for key, array in trajectory.tensors.items():
        phase, at, name = key.split("/", 2)
        if int(at) == after and phase in kept:
            kept[phase][name] = array
    slots: dict[str, Any] = {}
    for key, array in kept["state"].items():
        slot, _, name = key.partition("/")
        slots.setdefault(slot, {})[name] = array
    start[after + 1] = (kept["update"], slots)
    return after, start, first


def load_trajectory(session: ReplaySession, arm: str, seed: int, backend: str) -> Trajectory | None:
    """Load the trajectory of a trial of the run; None if it cannot be read."""
    spec = session.plan.spec_of(session.plan.experiment.arms[arm])
    trial = session.folder.trial_folder((arm, backend, seed))
    try:
        return read_trajectory(trial, backend, spec.tensors())
    except UserError:
        return None


def run_replay(
    session: ReplaySession, backend: str, arm: str, seed: int, steps: Sequence[int], folder: Path
) -> None:
    """Run one backend's replay in its own processes; it leaves a new subfolder with the backend's
    name.

    Raises:
        UserError: the backend is not installed here.
        TrialError: a rank failed.
    """
    info = session.infos.get(backend)
    if info is None or not info.installed():
        how = f"; install it with: {info.install}" if info else ""
        raise UserError(f"the replay needs backend {backend!r}, which is not installed{how}")
    settings, options = session.plan.experiment.arms[arm], session.folder.run.options
    share = share_cores(settings, info, options, session.environs[backend])
    place = job_folder(folder, backend)
    place.mkdir()
    job = ReplayJob(
        run=str(session.folder.path.resolve()),
        backend=backend,
        arm=arm,
        seed=seed,
        steps=list(steps),
        leads=backend == REFERENCE,
        device=options.device if backend != REFERENCE else "auto",
        threads=share.threads,
        cores=share.cores,
        rendezvous=options.rendezvous,
        key="find",
        check=False,
    )
    REPLAY_JOB.write(place, job)
    count = settings.world_size if info.ranks == "processes" else 1
    processes = [
        describe_process(
            REPLAY, rank, [place], share.environ, preload=info.preload, cores=settings.cores
        )
        for rank in range(count)
    ]
    ended = start_and_train(TrainingRanks(processes=processes, limit=LIMIT, silence=SILENCE))
    if ended.code or ended.reason:
        result = ended.results.get(ended.rank, {})
        why = ended.reason or result.get("reason") or describe_exit(ended.code)
        lines = "" if result else "; ".join(["", *last_lines(log_path(place, ended.rank))[-2:]])
        raise TrialError(f"the replay of {backend} failed on rank {ended.rank}: {why}{lines}")


def steps_to_replay(after: int, first: int, updates: int) -> Sequence[int]:
    """Return the updates, up to ``updates``, to replay for a difference first seen at update
    ``first``, if update ``after`` is the last one known to agree.

    These are the first three, three after the common state, and ``first`` with the two before it;
    except for the first three none is later than ``first``.
    """
    near = {*range(after + 1, after + 4), *range(max(after + 1, first - 2), first + 1)}
    near = {step for step in near if step <= first}
    return sorted(step for step in {1, 2, 3} | near if step <= updates)
