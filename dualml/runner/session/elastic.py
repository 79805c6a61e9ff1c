"""Resume a run with another number of ranks: ``dualml run --resume DIR --world-size N``."""

from __future__ import annotations

from dualml.common.errors import UserError
from dualml.experiment.elastic import RULE, unresizable_reason, with_ranks
from dualml.experiment.plan import Plan
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import TrialRecord
from dualml.experiment.store.resizing import (
    check_replicas,
    copy_rank0_state,
    load_checkpoints,
    remove_surplus,
    write_resized,
)


def current_ranks(trial: TrialRecord, plan: Plan) -> int:
    """Return the number of ranks with which a trial resumes: its arm's, or that of its last
    resize."""
    if trial.resized:
        return int(trial.resized[-1].after)
    return plan.experiment.arms[trial.arm].world_size


def resize_trials(folder: RunFolder, plan: Plan, ranks: int | None) -> Plan:
    """Resize every trial that has not ended and has several ranks to ``ranks`` ranks: convert its
    checkpoints and record the change in ``run.json``.

    Args:
        folder: of the run.
        plan: of the run.
        ranks: None to change nothing and keep the number of the last start.

    Returns:
        The plan with the numbers of ranks that these trials now have.

    Raises:
        UserError: with ``ranks``, there is no such trial, or one cannot be resized, or its ranks
            hold different weights; nothing was changed.
    """
    pending = [t for t in folder.pending() if plan.experiment.arms[t.arm].world_size > 1]
    if ranks is not None:
        check_resize(folder, plan, pending, ranks)
        for trial in pending:
            resize_trial(folder, plan, trial, ranks)
    for trial in pending:
        now = current_ranks(folder.trials[trial.key], plan)
        plan = with_ranks(plan, trial.arm, now)
    return plan


def check_resize(folder: RunFolder, plan: Plan, pending: list[TrialRecord], ranks: int) -> None:
    """Raise `UserError` where one of the ``pending`` trials cannot be resized to ``ranks`` ranks,
    with the reason, or where there is none; nothing is changed. A trial that has this number
    already is accepted."""
    if not pending:
        raise UserError(
            f"--world-size {ranks}: no trial of {folder.path} that has not ended has several ranks"
        )
    for trial in pending:
        before = current_ranks(trial, plan)
        if before == ranks:
            continue
        arm = plan.experiment.arms[trial.arm]
        if (
            why := "one rank has no one to share with"
            if ranks < 2
            else unresizable_reason(arm, ranks)
        ):
            raise UserError(
                f"--world-size {ranks}: {trial.arm} has {before} ranks and cannot go on with "
                f"{ranks}: {why}; resume it without --world-size"
            )
        samples = len(plan.pool(arm, trial.seed))
        if ranks > samples:
            raise UserError(
                f"--world-size {ranks}: {trial.arm} has {samples} training samples; use at most "
                "as many ranks"
            )
        place = folder.trial_folder(trial.key)
        if loaded := load_checkpoints(place, before):
            check_replicas(place, loaded)


def resize_trial(folder: RunFolder, plan: Plan, trial: TrialRecord, ranks: int) -> None:
    """Convert a trial's checkpoints, if it has any, to ``ranks`` ranks, and record the change in
    the run folder; do nothing if it has that number already."""
    before = current_ranks(trial, plan)
    if before == ranks:
        return
    place = folder.trial_folder(trial.key)
    loaded, step = load_checkpoints(place, before), 0
    if loaded:
        step = loaded[0][0].step
        copy_rank0_state(place, loaded, ranks)
        write_resized(place, loaded, ranks)
    told = {"step": step, "before": before, "after": ranks, "rule": RULE}
    past = [one.describe() for one in trial.resized]
    folder.change(trial.key, resized=[*past, told], world_size=ranks)
    folder.write()
    remove_surplus(place, before, ranks)
