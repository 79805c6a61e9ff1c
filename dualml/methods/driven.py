"""A training whose updates somebody else's loop makes: what a trial asks of a method, and what the
ranks of one do together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.aggregation.parallel import over_ranks
from dualml.backend import (
    Array,
    Arrays,
    Backend,
    Memory,
    Observable,
    Recipe,
    Trace,
    Training,
    Weighable,
)
from dualml.backend.ability import Ability
from dualml.communicator import Communicator
from dualml.errors import TrialError
from dualml.methods.skips import Skips


class MethodTraining(Training, Observable):
    """A method at work in one process.

    Attributes:
        sharded: weights or state are spread over the ranks: `gather` collects the weights, the
            state is not seen.
        keeps: weights and optimizer state are all that an update leaves: a trial can be resumed.
        processes: that the engine says there are.
        groups: kind of group → ranks of each, where the engine divides them.
        prepared: samples of a full global batch, where the engine's own loader deals them out by
            `loaded`; 0 elsewhere.
        skips: updates that the engine has passed over; its `state` tells of them where the engine
            may.
    """

    sharded: bool = False
    keeps: bool = True
    processes: int = 1
    groups: Mapping[str, Sequence[Sequence[int]]] = {}
    prepared: int = 0
    skips: Skips

    def check_processes(self, asked: int) -> None:
        """
        Raises:
            TrialError: the engine is in another group than the ranks of the trial.
        """
        if self.processes != asked:
            raise TrialError(
                f"the engine trains in {counted(self.processes)}; the trial has {counted(asked)}: "
                "was it started by a launcher of another job, or with its WORLD_SIZE?"
            )

    def tested(self, x: Array, y: Array) -> Array | None:
        """Evaluate by the engine's own means, where it has some.

        Returns:
            One row for each sample that some rank tested, label, predicted class, loss; None: the
            engine leaves it to dualml.
        """
        return None

    def close(self) -> None:
        """Give back what its engine has taken outside of the device."""

    @abstractmethod
    def step(self, batch: Array, step: int, weight: float = 1.0) -> Any:
        """One update.

        Args:
            weight: of this rank's mean loss among those of all ranks, of which the mean is taken: 1
                where all have equally many samples.
        """

    def loaded(self, batches: Sequence[Array], first: int) -> Iterator[tuple[Array, Any]]:
        """Make an update for each of these global batches, the first of them number ``first``, with
        this rank's part as the engine's loader gives it.

        Returns:
            That part, positions (n,), and the lazy loss, one for each batch.
        """
        raise NotImplementedError

    def gather(self) -> None:
        """Make what `weights` and `evaluate` see that of now; all ranks call it."""

    def trace(self, batch: Array, probe: Array) -> Trace:
        """An engine shows no gradients; loss and weights are judged at every update."""
        return Trace(*self.look(batch, probe), loss=0.0, gradients={})


def counted(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


class Driving(Ability):
    """Of a backend: trains by methods."""

    does = "train by the methods of engines"

    @abstractmethod
    def method(
        self,
        name: str,
        recipe: Recipe,
        comm: Communicator | None,
        config: Mapping[str, Any] | None = None,
    ) -> MethodTraining:
        """The method of this name, ready.

        Args:
            config: its engine's own configuration, of methods that take one.

        Raises:
            Unsupported: there is none; it does not run here; its engine is missing.
        """


class Driven(Training, Observable, Weighable):
    """A method on one of several ranks, each with its part of the batch.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """

    def __init__(self, backend: Backend, training: MethodTraining, comm: Communicator) -> None:
        self.backend, self.training, self.comm = backend, training, comm
        self.now, self.gathered = 0, -1
        training.check_processes(comm.size)

    def check_parts(self, sizes: Sequence[int], step: int) -> None:
        """
        Raises:
            TrialError: a rank has no samples in an update.
        """
        if not min(sizes):
            raise TrialError(
                f"update {step} has {sum(sizes)} samples for {self.comm.size} ranks: one "
                "has none, and an engine needs some of every rank; use another batch_size"
            )

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """This rank's lazy loss and its share of the global batch."""
        part: Array = batch[self.comm.rank]
        share = len(part) / sum(map(len, batch))
        self.check_parts([len(each) for each in batch], step)
        self.now = step
        return self.training.step(part, step, share * self.comm.size), share

    def read(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Mean losses of the global batches."""
        return over_ranks(self.backend, self.comm, lazy)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> Trace:
        return Trace(*self.look(batch, probe), loss=0.0, gradients={})

    def gather(self) -> None:
        """Of this update's weights, once: then one rank alone may ask for them."""
        if self.gathered != self.now:
            self.training.gather()
            self.gathered = self.now

    def look(self, batch: Array | Sequence[Array], probe: Array) -> tuple[str, Arrays]:
        self.gather()
        whole = batch if isinstance(batch, np.ndarray) else np.concatenate(batch)
        return self.training.look(whole, probe)

    def given(self, batch: Array | Sequence[Array]) -> tuple[Array, Array]:
        return self.training.given(batch[self.comm.rank])

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        return self.training.evaluate(x, y)

    def weights(self) -> Arrays:
        self.gather()
        return self.training.weights()

    def state(self) -> dict[str, Arrays]:
        return self.training.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.training.load(weights, state, step)
        self.now, self.gathered = step, -1

    def memory(self, batch: Any = None) -> Memory:
        """All ranks call it: engines show what they hold while they make an update."""
        part = None if batch is None else batch[self.comm.rank]
        return self.training.ability(Weighable).memory(part)

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self.training.move(by)
