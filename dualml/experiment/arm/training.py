"""Kinds of arms that train."""

from collections.abc import Mapping
from typing import Any

from dualml.algorithms.optim import LRSchedule
from dualml.common.tagged_union import make_choice
from dualml.experiment.arm import reasons as why
from dualml.experiment.arm.base import Arm
from dualml.experiment.arm.settings import Optimizer


def is_constant(schedule: Mapping[str, Any]) -> bool:
    """Return whether a schedule, a table of its settings, keeps the optimizer's own learning
    rate."""
    return LRSchedule(**schedule).constant


class TrainingArm(Arm, only={"kind": make_choice("leave out kind", "train")}):
    """Arm that trains: all kinds but `CollectivesArm`."""

    optimizer: Optimizer


class OwnUpdatesArm(TrainingArm, without={"method": why.ENGINE, "method_config": why.CONFIG}):
    """Arm that trains by dualml's own updates: all kinds that train but `MethodArm`."""
