"""Optimizers, one file each, and the learning-rate schedules."""

from dualml.algorithms.optim.adagrad import Adagrad as Adagrad
from dualml.algorithms.optim.adam import Adam as Adam
from dualml.algorithms.optim.adamw import AdamW as AdamW
from dualml.algorithms.optim.base import RULES as RULES
from dualml.algorithms.optim.base import OptimizerSpec as OptimizerSpec
from dualml.algorithms.optim.base import rule_from as rule_from
from dualml.algorithms.optim.gd import GD as GD
from dualml.algorithms.optim.rmsprop import RMSprop as RMSprop
from dualml.algorithms.optim.schedule import LRSchedule as LRSchedule
from dualml.algorithms.optim.sgd import SGD as SGD
from dualml.common.former_members import former_names

__getattr__ = former_names(__name__, {"Rule": "OptimizerSpec", "Schedule": "LRSchedule"})
