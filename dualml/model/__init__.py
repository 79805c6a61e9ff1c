"""Layer specs, the model zoo and initial weights."""

from dualml.model.init import initial_weights
from dualml.model.spec import ModelSpec
from dualml.model.zoo import TEXT_ZOO, ZOO, model

__all__ = ["TEXT_ZOO", "ZOO", "ModelSpec", "initial_weights", "model"]
