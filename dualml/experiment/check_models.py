"""Check that the model settings of an experiment file belong to its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.algorithms.model.gpt import DECODERS
from dualml.algorithms.model.resnet import RESNETS
from dualml.algorithms.model.rnn import RECURRENT
from dualml.algorithms.model.zoo import model as zoo_model
from dualml.common.errors import UserError, prefix_errors
from dualml.experiment.arm import Arm
from dualml.experiment.models import DecoderSizes, RecurrentSettings

#: Models that have sizes.
SIZED = (*DECODERS, *RESNETS)


def reset_unused_settings(default_model: str, arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Return ``sizes`` and ``recurrent`` at their defaults, each only if neither the experiment's
    model nor that of a selected arm takes it; set, they would be refused by `check_models`.

    Args:
        default_model: the experiment's model.
        arms: name → arm, of those that were selected.
    """
    models = {default_model, *(arm.model for arm in arms.values())}
    unused: dict[str, Any] = {} if models & set(SIZED) else {"sizes": DecoderSizes()}
    return unused if models & set(RECURRENT) else {**unused, "recurrent": RecurrentSettings()}


def check_models(
    default_model: str, arms: Mapping[str, Arm], sizes: DecoderSizes, recurrent: RecurrentSettings
) -> None:
    """Raise `UserError` if ``sizes`` or ``recurrent`` are set and no model of the experiment has
    such settings, or if a model cannot have the given values, an arm's own ``recurrent`` included.

    Args:
        default_model: the experiment's model.
        arms: name → arm.
        sizes, recurrent: the experiment's own settings.
    """
    models = [default_model, *(arm.model for arm in arms.values())]
    if sizes.explicit_values and not set(models) & set(SIZED):
        raise UserError(
            f"sizes are of the models {', '.join(SIZED)}; {default_model!r} has its own: leave "
            "them out"
        )
    if recurrent.explicit_values and not set(models) & set(RECURRENT):
        raise UserError(
            f"recurrent has settings of the models {' and '.join(RECURRENT)}; received "
            f"{default_model!r}: leave them out"
        )
    for name in (known for known in (*SIZED, *RECURRENT) if known in models):
        key, table = ("sizes", sizes) if name in SIZED else ("recurrent", recurrent)
        settings: dict[str, Any] = {key: table.explicit_values}
        zoo_model(name, **settings)
    for name, arm in arms.items():
        if arm.recurrent.explicit_values:
            settings = {"recurrent": recurrent.explicit_values | arm.recurrent.explicit_values}
            with prefix_errors(f"arms.{name}"):
                zoo_model(arm.model, **settings)
