"""Layer specifications, the model zoo and initial weights."""

from dualml.algorithms.model.init import initial_weights as initial_weights
from dualml.algorithms.model.spec import ModelSpec as ModelSpec
from dualml.algorithms.model.zoo import CLASSIFIERS as CLASSIFIERS
from dualml.algorithms.model.zoo import TEXT_ZOO as TEXT_ZOO
from dualml.algorithms.model.zoo import ZOO as ZOO
from dualml.algorithms.model.zoo import model as model
