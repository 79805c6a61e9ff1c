"""Choice of the data parallel trainer that an arm asks for."""

from __future__ import annotations

from dualml.parallel.aggregation import ASYNCHRONOUS, NATIVE
from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
from dualml.parallel.aggregation.local_sgd import LocalSGD
from dualml.parallel.aggregation.native import NativeDataParallel
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.settings import Aggregation


def parallel_trainer_class(settings: Aggregation) -> type[DataParallel]:
    """Return the trainer class: gradients summed here, by the framework or during the backward
    pass; parameters averaged; or an asynchronous server."""
    if settings.strategy == ASYNCHRONOUS:
        return AsyncParameterServer
    if settings.strategy == NATIVE or settings.overlap:
        return NativeDataParallel
    return LocalSGD if settings.of == "parameters" else DataParallel
