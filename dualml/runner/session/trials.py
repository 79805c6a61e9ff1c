"""Group the trials of a run: the ranks of a group start once, for all of its trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualml.backend import ExternalLaunch
from dualml.common.machine import usable_cores
from dualml.experiment.plan import Plan
from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.launch.rank_server import RankServer
from dualml.runner.session.prepare import FrozenRun
from dualml.runner.session.rank_group import RankGroup
from dualml.runner.session.trial_records import Listener, TrialRecords


def iterate_groups(
    frozen: FrozenRun,
    environs: Mapping[str, dict[str, str]],
    listen: Listener,
    external_launch: ExternalLaunch | None = None,
    server: RankServer | None = None,
) -> Iterator[RankGroup]:
    """Yield each group of ranks that is to be started for trials that have not ended. The caller
    runs the group before it asks for the next one, which may have the rest of the same trials.

    Args:
        frozen: the run.
        environs: backend → environment variables its workers need before the import.
        listen: called as ``listen(trial, event)``; ``{"phase": "end"}`` when a trial is over.
        external_launch: the external launcher, where this process is the first of its ranks.
        server: for ranks on other machines.

    Raises:
        RankLost: a rank on another machine is gone; the current trial has failed.
    """
    number = 0  # counts the groups with several ranks
    for together in group_trials(frozen.folder.pending(), frozen.plan):
        waiting = list(together)
        while waiting:  # after a trial that failed the others need new ranks
            if server is not None:
                server.check_lost()
            records = TrialRecords(frozen, waiting, listen)
            group = RankGroup(frozen, environs, records, number, external_launch, server)
            if why := group.unsupported_reason():
                records.refuse("unsupported" if waiting == together else "interrupted", why)
                waiting = []
            else:
                yield group
                waiting = waiting[records.trial_index :]
            number += group.size > 1
    if server is not None:
        server.check_lost()


def group_trials(trials: Sequence[TrialRecord], plan: Plan) -> list[list[Key]]:
    """Group trials whose ranks can be started once, and return the keys (arm, backend, seed) of
    each group: trials with several ranks by backend, number of ranks and other settings, each
    single-rank trial on its own.

    Groups with few ranks come first, and short single-rank trials before long ones: the first
    verdict of a run is available when both backends have ended one arm.
    """
    arms, together = plan.experiment.arms, dict[Any, list[Key]]()

    def length(trial: TrialRecord) -> int:
        return (
            count_gradients(plan, trial.arm, trial.seed) if arms[trial.arm].world_size == 1 else 0
        )

    for number, trial in enumerate(sorted(trials, key=length)):
        arm = arms[trial.arm]
        alone = arm.world_size == 1
        group: Any = ("alone", number)
        if not alone:  # engines keep something in the process that is theirs: each has its own
            staged = arm.split is not None and arm.split.host_staged
            group = (trial.backend, arm.world_size, arm.cores, arm.launcher, arm.method, staged)
        together.setdefault(group, []).append(trial.key)
    return sorted(together.values(), key=lambda keys: arms[keys[0][0]].world_size)


def count_gradients(plan: Plan, arm: str, seed: int) -> int:
    """Return the number of per-sample gradients that all ranks of a trial together compute; 0 for a
    benchmark of collectives."""
    its = plan.experiment.arms[arm]
    if its.kind != "train":
        return 0
    return plan.batch_sampler(its, seed).count_sample_gradients(plan.schedule(its, seed).updates)


def estimate_work(plan: Plan, keys: Sequence[Key]) -> dict[Key, float]:
    """Estimate the relative work of trials: the gradients, plus a constant share for what every
    trial does alike (the mean number of gradients), multiplied where ranks share cores and take
    turns."""
    own = {key: count_gradients(plan, key[0], key[2]) for key in keys}
    alike, cores = sum(own.values()) / max(1, len(own)) or 1, usable_cores()
    crowds = {key: max(1.0, plan.experiment.arms[key[0]].world_size / cores) for key in keys}
    return {key: crowds[key] * (alike + each) for key, each in own.items()}
