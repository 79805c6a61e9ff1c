"""Sharded data parallel training: the Zero Redundancy Optimizer (ZeRO).

In plain data parallel training every rank holds all weights, gradients and optimizer state. Here a
rank keeps its N-th part of the optimizer state (stage 1), also of the gradients (stage 2), and also
of the weights (stage 3); what it needs of the other ranks' parts is gathered when it is needed and
overwritten afterwards.

A `Unit` is what is gathered at once: consecutive layers whose parameters fill a bucket. Its
parameters are stored one after the other in a vector whose length is a multiple of N; rank r has
the r-th part. The optimizers of `dualml.algorithms.optim` work element by element, so an optimizer
of those parts makes the same update.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, sections 5 and 7.
"""

from dualml.common.former_members import former_names
from dualml.parallel.zero.settings import REDUCE_MODES as REDUCE_MODES
from dualml.parallel.zero.settings import STAGES as STAGES
from dualml.parallel.zero.settings import Sharding as Sharding
from dualml.parallel.zero.units import Unit as Unit
from dualml.parallel.zero.units import units_of as units_of

__getattr__ = former_names(__name__, {"WAYS": "REDUCE_MODES"})
