"""Elastic trials: which ones can resume with another number of ranks, and the batches they then
have.

In data parallel training all state that determines the next update is the same on every rank, or is
gathered before it is saved (`dualml.parallel.zero`). A trial whose state depends on the number of
ranks, or belongs to one rank, cannot resume with another number.
"""

from __future__ import annotations

import dataclasses

from pydantic import ValidationError

from dualml.common.strict_model import describe_validation_error
from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.plan import Plan
from dualml.parallel.aggregation import STRATEGIES

#: How samples are divided after the change. Updates keep their batches, which do not depend on who
#: computes them; each is split into nearly equal parts, one per rank. The lists of a partition stay
#: as they are: an update's batch is the next piece of every list.
RULE = "planned_batches"


def unresizable_reason(arm: Arm, ranks: int) -> str:
    """Return the first reason why a trial of an arm cannot resume with ``ranks`` ranks, as text for
    a message; empty if it can."""
    sharing = arm.aggregation
    strategy = STRATEGIES.get(sharing.strategy)
    reasons = {
        "it times collectives of its own number of ranks": arm.kind != "train",
        "its model is split by a plan for its own number of ranks": arm.split is not None,
        f"{arm.method} keeps what is its own on every rank": bool(arm.method),
        f"{arm.launcher} starts its ranks": bool(arm.launcher),
        "every rank has files of its own outside of the device": arm.offload is not None,
        "its ranks train parameters of their own between two averages": sharing.of != "gradients",
        f"reduce = {sharing.reduce} depends on the number of ranks": sharing.reduce != "weighted",
        f"compress = {sharing.compress} keeps an error on every rank": sharing.compress != "none",
        f"{sharing.strategy} is another rule with another number of ranks": (
            strategy is not None and not strategy.exact
        )
        or sharing.strategy == "parameter_server_async",
    }
    if told := [reason for reason, holds in reasons.items() if holds]:
        return told[0]
    try:
        make_arm(arm.model_dump(exclude_unset=True), world_size=ranks)
    except ValidationError as error:
        return describe_validation_error(error, Arm)
    return ""


def with_ranks(plan: Plan, name: str, ranks: int) -> Plan:
    """Return a copy of the plan with another number of ranks for the arm ``name``; samples, weights
    and hash stay, and a partition keeps the number of ranks that it was made for."""
    arm = plan.experiment.arms[name]
    change: dict[str, int] = {"world_size": ranks}
    if arm.partition:
        change["dealt_to"] = arm.partition_rank_count
    arms = {**plan.experiment.arms, name: arm.model_copy(update=change)}
    experiment = plan.experiment.model_copy(update={"arms": arms})
    return dataclasses.replace(plan, experiment=experiment)
