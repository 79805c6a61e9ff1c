"""Layer specifications, the model zoo and initial weights."""

from dualml.model.init import initial_weights as initial_weights
from dualml.model.spec import ModelSpec as ModelSpec
from dualml.model.zoo import CLASSIFIERS as CLASSIFIERS
from dualml.model.zoo import TEXT_ZOO as TEXT_ZOO
from dualml.model.zoo import ZOO as ZOO
from dualml.model.zoo import model as model
