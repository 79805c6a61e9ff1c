"""Update rules, one file each, and the step-size schedules."""

from dualml.optim.adagrad import Adagrad
from dualml.optim.adam import Adam
from dualml.optim.adamw import AdamW
from dualml.optim.base import RULES, Rule, rule_from
from dualml.optim.gd import GD
from dualml.optim.rmsprop import RMSprop
from dualml.optim.schedule import Schedule
from dualml.optim.sgd import SGD

__all__ = [
    "GD",
    "RULES",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "RMSprop",
    "Rule",
    "Schedule",
    "rule_from",
]
