"""Choice of the data parallel trainer that an arm asks for."""

from __future__ import annotations

from dualml.parallel.aggregation import ASYNCHRONOUS, NATIVE
from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
from dualml.parallel.aggregation.local_sgd import LocalSGD
from dualml.parallel.aggregation.native import NativeDataParallel
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.settings import Aggregation


def parallel_trainer_class(settings: Aggregation) -> type[DataParallel]:
    """Return the trainer class for these settings: `AsyncParameterServer` for the strategy
    ``parameter_server_async``; `NativeDataParallel` where the framework sums the gradients or they
    are summed during the backward pass; else `LocalSGD` for parameters and `DataParallel` for
    gradients. Not for ``replicas``, which one process trains."""
    if settings.strategy == ASYNCHRONOUS:
        return AsyncParameterServer
    if settings.strategy == NATIVE or settings.overlap:
        return NativeDataParallel
    return LocalSGD if settings.of == "parameters" else DataParallel
