"""Choice of the data parallel trainer that an arm asks for."""

from __future__ import annotations

from dualml.aggregation import ASYNCHRONOUS, NATIVE
from dualml.aggregation.asynchronous import AsyncParameterServer
from dualml.aggregation.local_sgd import LocalSGD
from dualml.aggregation.native import NativeDataParallel
from dualml.aggregation.parallel import DataParallel
from dualml.aggregation.settings import Aggregation


def parallel_trainer_class(settings: Aggregation) -> type[DataParallel]:
    """Return the trainer class: gradients summed here, by the framework or during the backward
    pass; parameters averaged; or an asynchronous server."""
    if settings.strategy == ASYNCHRONOUS:
        return AsyncParameterServer
    if settings.strategy == NATIVE or settings.overlap:
        return NativeDataParallel
    return LocalSGD if settings.of == "parameters" else DataParallel
