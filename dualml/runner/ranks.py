"""What a trial does differently when it has several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualml.aggregation import NATIVE
from dualml.aggregation.asynchronous import Asynchronous, staleness
from dualml.aggregation.buckets import layout
from dualml.aggregation.local_sgd import LocalSGD
from dualml.aggregation.native import Summed
from dualml.aggregation.pieces import Pieces
from dualml.aggregation.scheme import scheme
from dualml.aggregation.slow import Slow
from dualml.backend import Backend, Training
from dualml.communicator import Communicator
from dualml.experiment.aggregation import Aggregation
from dualml.experiment.deals import Feed
from dualml.experiment.schema import Arm
from dualml.parity.envelope import shuffled
from dualml.runner.checkpoint import NAME
from dualml.runner.evaluate import Score, evaluate
from dualml.runner.seen import Seen, combined

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

    def pieces(
        self,
        key: str,
        shapes: dict[str, tuple[int, ...]],
        settings: Aggregation,
        comm: Communicator,
    ) -> Pieces:
        """The model of this key taken apart as an arm's aggregation wants it."""
        buckets, training = layout(shapes, settings.bucket_bytes), self.trainings[key]
        name = (key, f"{settings.strategy == NATIVE} {settings.overlap} {buckets}")
        if name not in self.taken_apart:
            if settings.strategy == NATIVE:
                self.taken_apart[name] = training.native(comm)
            elif settings.overlap:
                self.taken_apart[name] = training.overlapping(buckets, comm)
            else:
                self.taken_apart[name] = training.pieces(buckets)
        return self.taken_apart[name]


class Alone:
    """A trial with one rank: it decides by its own clock.

    Attributes:
        rank, size: 0 of 1.
        training: what the trial trains.
        free: whether the order of updates is left to chance.
    """

    rank, size, free = 0, 1, False

    def __init__(self, backend: Backend, training: Training, folder: Path, feed: Feed) -> None:
        self.backend, self.training, self.folder, self.feed = backend, training, folder, feed

    def batch(self, step: int) -> Any:
        """What `training` gets as the batch of an update."""
        return self.feed.batch(step)

    def trained_on(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        """Samples of ``batch`` that this process worked on, and the rank they were dealt to."""
        ends = np.cumsum([len(part) for part in self.feed.parts(step)])
        return list(enumerate(np.split(batch, ends[:-1])))

    def warm_up(self, chunk: int) -> list[tuple[Any, int]]:
        """Batches, and the numbers of updates, that compile all that the trial needs."""
        found = []
        for step in self.feed.typical(together=True):
            batch = self.feed.batch(step)
            # A chunk and the remainder have every shape that the accumulation of all has.
            short = len(batch) if len(batch) <= chunk else chunk + (len(batch) % chunk or chunk)
            found.append((batch[:short], 1))
        return found

    def samples_sha256(self, seen: Seen) -> str:
        """Fingerprint of all that the ranks trained on."""
        return combined(seen.chains)

    def apart(self) -> list[float]:
        """How far each rank's weights are from rank 0's, as a share of their size, where all should
        hold the same; empty elsewhere."""
        return []

    def measured(self) -> list[tuple[int, str, float]]:
        """Update, metric and value (a ratio) of what was measured beside the losses since the last
        time."""
        return []

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
    def evaluating(self) -> Iterator[None]:
        """The model as it is evaluated."""
        yield

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """The score on some samples; None on a rank that only stands by."""
        return evaluate(self.training, x, y, index, classes)

    def finish(self) -> None:
        """After the last update: the model as it is kept."""

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """The same samples in another order."""
        return shuffled(batch, seed, draw, step)

    def begin_draws(self) -> None:
        """Before the rounding envelope is drawn."""

    def begin_training(self) -> None:
        """Before the first update that counts."""

    def summary(self) -> dict[str, Any]:
        """What the trial tells of its ranks."""
        return {}


class Several(Alone):
    """A trial with several ranks: all decide alike."""

    def __init__(
        self, backend: Backend, training: Training, folder: Path, feed: Feed, comm: Communicator
    ) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        super().__init__(backend, training, folder, feed)

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


class Group(Several):
    """Ranks that share the batch, and the evaluation where they can."""

    def __init__(
        self,
        backend: Backend,
        training: Training,
        pieces: Pieces,
        folder: Path,
        comm: Communicator,
        arm: Arm,
        seed: int,
        feed: Feed,
    ) -> None:
        settings, self.pieces = arm.aggregation, pieces
        slow = None if arm.slow is None else Slow(**arm.slow.model_dump())
        kind = scheme(settings)
        self.parallel = kind(backend, training, self.pieces, comm, settings, slow, seed)
        self.settings, self.every = settings, settings.every
        self.free = kind is Asynchronous and settings.arrival == "free"
        self.told: dict[str, Any] = {}
        super().__init__(backend, cast(Training, self.parallel), folder, feed, comm)

    def batch(self, step: int) -> Any:
        return self.feed.parts(step)

    def trained_on(self, batch: Any, step: int) -> list[tuple[int, NDArray[np.int64]]]:
        return [(self.rank, batch[self.rank])]

    def warm_up(self, chunk: int) -> list[tuple[Any, int]]:
        """With the number of an update at which parameters are averaged, too."""
        return [(self.feed.parts(s), self.every) for s in self.feed.typical(together=False)]

    def samples_sha256(self, seen: Seen) -> str:
        mine = np.frombuffer(bytes.fromhex(seen.chains[self.rank]), np.int64)
        found = self.comm.all_gather(self.comm.tensor(mine))
        return combined({r: self.comm.numpy(x).tobytes().hex() for r, x in enumerate(found)})

    def apart(self) -> list[float]:
        if isinstance(self.parallel, LocalSGD | Asynchronous):
            return []
        # One random projection of each rank's weights: as far apart as they are, in one number.
        flat = np.concatenate([w.ravel() for w in self.training.weights().values()])
        signs = np.random.default_rng(0).integers(0, 2, len(flat)) * 2.0 - 1.0
        mine = np.array([flat @ signs, np.linalg.norm(flat.astype(np.float64))])
        first, *_ = told = [
            self.comm.numpy(x) for x in self.comm.all_gather(self.comm.tensor(mine))
        ]
        return [float(abs(x[0] - first[0]) / max(float(first[1]), 1e-30)) for x in told]

    def measured(self) -> list[tuple[int, str, float]]:
        if not isinstance(self.parallel, LocalSGD):
            return []
        found, self.parallel.apart = self.parallel.apart, []
        return [
            (step, metric, value)
            for step, divergence, drift in found
            for metric, value in (("divergence", divergence), ("drift", drift))
        ]

    def read(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        return self.parallel.read(lazy)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        mean = self.parallel.consensus()
        own = self.pieces.parameters() if mean is not None else []
        if mean is not None:
            self.pieces.assign(mean)
        yield
        if mean is not None:
            self.pieces.assign(own)
        self.comm.barrier()  # nobody's waiting for the evaluation counts as part of an update

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        if self.parallel.alike:
            return evaluate(self.training, x, y, index, classes, self.comm)
        return super().score(x, y, index, classes) if self.rank == 0 else None

    def finish(self) -> None:
        mean = self.parallel.consensus()
        if mean is not None:
            self.pieces.assign(mean)
        self.parallel.times.write(self.folder / f"rank{self.rank}.times.npz")
        if isinstance(self.parallel, Asynchronous) and self.rank == 0:
            self.told = {"staleness": staleness(self.parallel.served, self.size)}

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Inside each rank's part: which rank has which samples is not a matter of rounding."""
        return [shuffled(part, seed, draw, step) for part in batch]

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
        if isinstance(self.parallel, Summed):
            how = {"gradients": f"native: {self.parallel.detail}", "broadcast": how["broadcast"]}
        return {"world_size": self.size, "how": how, **self.told}
