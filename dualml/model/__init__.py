"""Layer specs, the model zoo and initial weights."""

from dualml.model.init import initial_weights
from dualml.model.spec import ModelSpec
from dualml.model.zoo import ZOO, model

__all__ = ["ZOO", "ModelSpec", "initial_weights", "model"]
