"""Optimizers, one file each, and the learning-rate schedules."""

from dualml.optim.adagrad import Adagrad as Adagrad
from dualml.optim.adam import Adam as Adam
from dualml.optim.adamw import AdamW as AdamW
from dualml.optim.base import RULES as RULES
from dualml.optim.base import OptimizerSpec as OptimizerSpec
from dualml.optim.base import rule_from as rule_from
from dualml.optim.gd import GD as GD
from dualml.optim.rmsprop import RMSprop as RMSprop
from dualml.optim.schedule import LRSchedule as LRSchedule
from dualml.optim.sgd import SGD as SGD
