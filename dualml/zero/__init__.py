"""Sharding over the ranks of data parallel training: the Zero Redundancy Optimizer.

Every rank of plain data parallel training holds all weights, all gradients and all of the
optimizer's state. Here a rank keeps its N-th part of the state (stage 1), of the gradients, too
(stage 2), and of the weights, too (stage 3); what it needs of the others' parts comes when it is
needed and is overwritten afterwards.

A `Unit` is what comes at once: consecutive layers whose parameters fill a bucket. Its parameters
lie one after the other in a vector whose length N divides; rank r has its r-th part. The rules of
`dualml.optim` work number by number, so that an optimizer of those parts makes the same update.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, sections 5 and 7.
"""

from dualml.zero.settings import STAGES as STAGES
from dualml.zero.settings import WAYS as WAYS
from dualml.zero.settings import Sharding as Sharding
from dualml.zero.units import Unit as Unit
from dualml.zero.units import units_of as units_of
