"""What a trial does differently when it has several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualml.aggregation.asynchronous import Asynchronous, staleness
from dualml.aggregation.buckets import layout
from dualml.aggregation.pieces import Pieces
from dualml.aggregation.scheme import scheme
from dualml.aggregation.slow import Slow
from dualml.backend import Backend, Training
from dualml.communicator import Communicator
from dualml.communicator.parts import parts_of
from dualml.experiment.schema import Arm
from dualml.parity.envelope import shuffled
from dualml.runner.checkpoint import NAME

SEGMENT_S = 0.25  # aim of one stretch of updates between two readings of the loss
TOGETHER = 16  # updates of a stretch where the ranks must agree on it


class Workshop:
    """The models of one process, kept from trial to trial.

    MindSpore compiles every new one, which takes longer than many a trial: those that differ only
    in how their ranks talk share one.
    """

    def __init__(self) -> None:
        self.trainings: dict[str, Training] = {}
        self.taken_apart: dict[tuple[str, str], Pieces] = {}

    def training(self, key: str, make: Callable[[], Training]) -> Training:
        """The model made before under this key; whoever gets it loads weights and state."""
        if key not in self.trainings:
            self.trainings[key] = make()
        return self.trainings[key]

    def pieces(self, key: str, shapes: dict[str, tuple[int, ...]], limit: int) -> Pieces:
        buckets = layout(shapes, limit)
        name = (key, str(buckets))
        if name not in self.taken_apart:
            self.taken_apart[name] = self.trainings[key].pieces(buckets)
        return self.taken_apart[name]


class Alone:
    """A trial with one rank: it decides by its own clock.

    Attributes:
        rank, size: 0 of 1.
        training: what the trial trains.
        free: whether the order of updates is left to chance.
    """

    rank, size, free = 0, 1, False

    def __init__(self, backend: Backend, training: Training, folder: Path) -> None:
        self.backend, self.training, self.folder = backend, training, folder

    def read(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        """Losses of a stretch of updates."""
        return self.backend.read(lazy)

    def next_stretch(self, stretch: int, made: int, seconds: float) -> int:
        """Updates of the next stretch, after one of ``made`` updates in ``seconds``."""
        return 2 * stretch if seconds < SEGMENT_S / 2 and made == stretch else stretch

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        """Whether to save, ``seconds`` of training after the last time."""
        return seconds > every

    @property
    def checkpoint(self) -> Path:
        return self.folder / NAME

    def agree(self, step: int) -> bool:
        """Whether all ranks can go on after ``step``."""
        return True

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[bool]:
        """The model as it is evaluated; whether this rank is the one to do it."""
        yield True

    def finish(self) -> None:
        """After the last update: the model as it is kept."""

    def warm_up_lengths(self, length: int, chunk: int) -> tuple[int, int]:
        """Samples and number of an update that compiles all that a batch of ``length`` needs."""
        # a chunk and the remainder have every shape that the accumulation of `length` has
        return (length if length <= chunk else chunk + (length % chunk or chunk)), 1

    def shuffle(
        self, batch: NDArray[np.int64], seed: int, draw: int, step: int
    ) -> NDArray[np.int64]:
        """The same samples in another order."""
        return shuffled(batch, seed, draw, step)

    def begin_draws(self) -> None:
        """Before the rounding envelope is drawn."""

    def begin_training(self) -> None:
        """Before the first update that counts."""

    def summary(self) -> dict[str, Any]:
        """What the trial tells of its ranks."""
        return {}


class Group(Alone):
    """A trial with several ranks: all decide alike, rank 0 evaluates."""

    def __init__(
        self,
        backend: Backend,
        training: Training,
        pieces: Pieces,
        folder: Path,
        comm: Communicator,
        arm: Arm,
        seed: int,
    ) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        settings, self.pieces = arm.aggregation, pieces
        slow = None if arm.slow is None else Slow(**arm.slow.model_dump())
        kind = scheme(settings)
        self.parallel = kind(backend, training, self.pieces, comm, settings, slow, seed)
        self.settings, self.every = settings, settings.every
        self.free = kind is Asynchronous and settings.arrival == "free"
        self.told: dict[str, Any] = {}
        super().__init__(backend, cast(Training, self.parallel), folder)

    def read(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        return self.parallel.read(lazy)

    def next_stretch(self, stretch: int, made: int, seconds: float) -> int:
        return TOGETHER

    def checkpoint_due(self, looked: bool, seconds: float, every: float) -> bool:
        return looked  # clocks differ between ranks; evaluations come at the same updates

    @property
    def checkpoint(self) -> Path:
        return self.folder / (f"rank{self.rank}.{NAME}" if self.rank else NAME)

    def agree(self, step: int) -> bool:
        steps = self.comm.all_gather(self.comm.tensor(np.array([step], np.int64)))
        return len({int(self.comm.numpy(s)[0]) for s in steps}) == 1

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[bool]:
        mean = self.parallel.consensus()
        own = self.pieces.parameters() if mean is not None else []
        if mean is not None:
            self.pieces.assign(mean)
        yield self.rank == 0
        if mean is not None:
            self.pieces.assign(own)
        self.comm.barrier()  # nobody's waiting for the evaluation counts as part of an update

    def finish(self) -> None:
        mean = self.parallel.consensus()
        if mean is not None:
            self.pieces.assign(mean)
        self.parallel.times.write(self.folder / f"rank{self.rank}.times.npz")
        if isinstance(self.parallel, Asynchronous) and self.rank == 0:
            self.told = {"staleness": staleness(self.parallel.served, self.size)}

    def warm_up_lengths(self, length: int, chunk: int) -> tuple[int, int]:
        return length, self.every  # so that parameters are averaged, too

    def shuffle(
        self, batch: NDArray[np.int64], seed: int, draw: int, step: int
    ) -> NDArray[np.int64]:
        """Inside each rank's part: which rank has which samples is not a matter of rounding."""
        ends = np.cumsum(parts_of(len(batch), self.size))[:-1]
        parts = np.split(batch, ends)
        return np.concatenate([shuffled(part, seed, draw, step) for part in parts])

    def begin_training(self) -> None:
        self.parallel.times.clear()
        self.comm.barrier()

    def begin_draws(self) -> None:
        self.parallel.slow = None  # sleeping changes no number
        self.comm.barrier()

    def summary(self) -> dict[str, Any]:
        uses = ("exchange",) if isinstance(self.parallel, Asynchronous) else None
        names = uses or (*self.parallel.strategy.uses, "broadcast")
        how = {name: str(self.comm.how(name)) for name in names}
        return {"world_size": self.size, "how": how, **self.told}
