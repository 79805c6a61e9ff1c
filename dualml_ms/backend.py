"""The MindSpore backend: one device in one process, every step compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import mindspore as ms
import numpy as np

from dualml.backend import Array, Arrays
from dualml.communicator import Communicator, Place
from dualml.errors import Unsupported
from dualml.model.spec import ModelSpec
from dualml.optim import Rule, Schedule
from dualml.split.horizontal import Segment
from dualml.split.plan import SplitPlan
from dualml_ms.environment import environment, resolve_device
from dualml_ms.split import MindSporeStage
from dualml_ms.training import MindSporeTraining


class MindSporeBackend:
    """See `dualml.backend.Backend`.

    Args:
        device: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``ascend``.
        threads: recorded; MindSpore takes its threads from the environment of the process.

    Raises:
        UserError, Unsupported: a device that is not there, or that this build cannot drive.
    """

    name = "mindspore"
    dtype = "float32"

    def __init__(self, device: str = "auto", threads: int = 0) -> None:
        self.device, self.threads = resolve_device(device), threads
        ms.set_context(mode=ms.GRAPH_MODE)
        if ms.get_context("deterministic") != "ON":  # once in the life of a process
            ms.set_deterministic(True)  # kernels on a CPU repeat bit for bit anyway
        ms.set_seed(0)  # nothing here draws from it; a stray draw would at least repeat

    def environment(self) -> dict[str, str]:
        return environment(self.device, self.threads)

    def training(
        self,
        spec: ModelSpec,
        weights: Arrays,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        *,
        updates: int,
        chunk: int = 256,
        seed: int = 0,
    ) -> MindSporeTraining:
        return MindSporeTraining(spec, weights, rule, schedule, loss, x, y, updates, chunk, seed)

    def stage(
        self,
        segments: Sequence[Segment],
        *,
        first: bool,
        last: bool,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        updates: int,
    ) -> MindSporeStage:
        return MindSporeStage(segments, first, last, rule, schedule, loss, x, y, updates)

    def rpc(self, plan: SplitPlan, comm: Communicator, **options: Any) -> NoReturn:
        raise Unsupported(
            "MindSpore ignores Primitive.place on a CPU and has no remote procedure calls; "
            'engine = "messages" runs the same split'
        )

    def read(self, losses: Sequence[Any]) -> Array:
        return np.array(
            [sum(float(loss.asnumpy()) * share for loss, share in parts) for parts in losses]
        )

    def connect(self, place: Place) -> Communicator:
        from dualml_ms.communicator import connect

        return connect(place)

    def synchronize(self) -> None:
        if self.device != "CPU":  # on the CPU a call returns when its graph has run
            ms.runtime.synchronize()
