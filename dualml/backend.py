"""The boundary between the core and a framework, and how backends are found.

A backend package registers a light function under the entry-point group ``dualml.backends``. It
returns a `BackendInfo` without importing the framework, so that the parent process, which plans,
launches and reports, never does. The `Backend` itself is made inside a worker process.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError, nearest
from dualml.model.spec import ModelSpec
from dualml.optim.base import Rule
from dualml.optim.schedule import Schedule

if TYPE_CHECKING:
    from dualml.aggregation.pieces import Pieces, Summing
    from dualml.communicator import Communicator, Place
    from dualml.launch.adopted import Adopted
    from dualml.split.horizontal import Segment
    from dualml.split.plan import SplitPlan
    from dualml.split.stage import Stage

Array = NDArray[Any]
Arrays = dict[str, Array]
GROUP = "dualml.backends"


@dataclass(frozen=True)
class BackendInfo:
    """What the parent process may know about a backend without importing its framework.

    Args:
        name: the word on the command line (``torch``).
        framework: the module whose presence decides whether the backend is installed.
        install: the command that installs the framework.
        factory: ``"package.module:Class"``, resolved in the worker.
        environ: environment variables a worker needs *before* the import, from the number of
            threads; `Backend.environment` records those that decide numbers or speed.
        ranks: what the ranks of a trial are: ``processes`` that `Backend.connect` joins into a
            group, ``threads`` of one process, or ``none``, where a trial can only have one rank.
        adopted: what the framework's own launcher says of this process, None if it started it not.
    """

    name: str
    framework: str
    install: str
    factory: str
    environ: Callable[[int], dict[str, str]] = lambda threads: {}
    ranks: Literal["processes", "threads", "none"] = "none"
    adopted: Callable[[], Adopted | None] = lambda: None

    def installed(self) -> bool:
        spec = importlib.util.find_spec(self.framework)
        return spec is not None and spec.origin is not None  # a bare folder of that name is none

    def create(self, device: str = "auto", threads: int = 0) -> Backend:
        module, _, attribute = self.factory.partition(":")
        made: Backend = getattr(importlib.import_module(module), attribute)(device, threads)
        return made


class Step(Protocol):
    """The fast path: one update of the weights, compiled or fused, without a synchronisation."""

    def __call__(self, batch: Array, step: int) -> Any:
        """Train on samples ``batch`` (int64 indices, shape ``(B,)``) as update ``step`` (from 1).

        Returns the mean loss of the batch before the update in a form only `Backend.read`
        understands (the framework's lazy scalar, or one for each chunk with its weight). Batches
        larger than the chunk size are accumulated into one full-batch gradient.
        """


@dataclass(frozen=True)
class Trace:
    """What one batch does to a model, seen from outside: nothing is changed by looking.

    Attributes:
        data: SHA-256 of the batch as the framework holds it (`batch_digest`).
        activations: layer name → output of that layer for the probe samples.
        loss: mean loss over the batch.
        gradients: canonical parameter name → gradient of the mean loss.
    """

    data: str
    activations: Arrays
    loss: float
    gradients: Arrays


class Training(Protocol):
    """A model, its optimizer and the training data on one device: what a trial works with."""

    step: Step
    #: Updates made so far: the masks of Dropout are those of the next one.
    now: int

    def trace(self, batch: Array, probe: Array) -> Trace:
        """Loss and gradients of ``batch`` and activations of the samples ``probe``."""

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """The parts of `trace` that need no gradient: `Trace.data` and `Trace.activations`."""

    def given(self, batch: Array) -> tuple[Array, Array]:
        """The samples and labels that the model is given for these indices, as it is given them."""

    def pieces(self, layout: Sequence[Sequence[str]]) -> Pieces:
        """One update taken apart, with the parameters in the buckets of ``layout``."""

    def overlapping(self, layout: Sequence[Sequence[str]], comm: Communicator) -> Summing:
        """Like `pieces`, each bucket sent as soon as its gradients are there.

        Raises:
            Unsupported: this framework cannot send while it computes.
        """

    def native(self, comm: Communicator) -> Summing:
        """The framework's own data parallel training, made for this model alone.

        Raises:
            Unsupported: this backend has none.
        """

    def replicas(self) -> None:
        """From now on `step` splits its batch over all GPUs of this process.

        Raises:
            Unsupported: this framework cannot, or there is one device only.
        """

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Mean loss over ``x``, ``y`` and the predicted classes, integers in the shape of ``y``, in
        evaluation mode."""

    def weights(self) -> Arrays:
        """Canonical name → copy of the parameter."""

    def state(self) -> dict[str, Arrays]:
        """Optimizer state: slot (``exp_avg``) → canonical name → copy."""

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Go to the point after update ``step``; ``Rule.init`` gives the state of step 0."""


#: Samples of an evaluation at once: enough to keep a core busy, few enough to need little memory.
EVALUATED_AT_ONCE = 250


def chunks(batch: Array, size: int) -> list[tuple[Array, float]]:
    """``batch`` cut into pieces of at most ``size`` indices, each with its share of the mean."""
    return [
        (batch[i : i + size], len(batch[i : i + size]) / len(batch))
        for i in range(0, len(batch), size)
    ]


def batch_digest(x: Array, y: Array) -> str:
    """SHA-256 of a batch: samples as float32 and labels as int64, whatever the framework held."""
    digest = hashlib.sha256(np.ascontiguousarray(x, np.float32).data)
    digest.update(np.ascontiguousarray(y, np.int64).data)
    return digest.hexdigest()


class Backend(Protocol):
    """One framework on one device inside one process."""

    name: str
    dtype: str

    def environment(self) -> dict[str, str]:
        """Versions, device, threads and determinism settings, as recorded in the run folder."""

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
    ) -> Training:
        """Put everything a trial needs on the device.

        Args:
            x: float32 (N, …); of a model of text, tokens (N, T) of any integer type.
            y: int64 (N,), or (N, T) where a sample has a label for every position.
            seed: of the trial; for the masks of Dropout (`dualml.model.dropout`). A gradient has
                those of the update after the last one that was made or loaded.
        """

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
    ) -> Stage:
        """What one rank has of a split model.

        Args:
            segments: its layers, stage by stage.
            first: whether the first of them takes the samples.
            last: whether the last of them ends in the loss.
        """

    def rpc(
        self,
        plan: SplitPlan,
        comm: Communicator,
        *,
        rule: Rule,
        schedule: Schedule,
        loss: str,
        x: Array,
        y: Array,
        updates: int,
        seed: int = 0,
    ) -> Training:
        """A model split by layer whose stages are called by the framework's remote procedure calls,
        as one of its ranks sees it; also an ``executor`` and a ``stage``, see `SplitRanks`.

        Raises:
            Unsupported: this framework has none.
        """

    def read(self, losses: Sequence[Any]) -> Array:
        """Lazy scalars of `Step` → float64 array; the only synchronisation of a training loop."""

    def synchronize(self) -> None:
        """Wait for the device; called before every reading of the clock."""

    def connect(self, place: Place) -> Communicator:
        """Join the other ranks of a trial; only where `BackendInfo.ranks` is ``processes``.

        Raises:
            CommunicationError: a rank did not come in time.
            Unsupported: this device cannot hold so many ranks.
        """


def backends() -> dict[str, BackendInfo]:
    """Every registered backend, installed or not, in the order numpy, torch, mindspore, others."""
    rank = {"numpy": 0, "torch": 1, "mindspore": 2}
    found = {point.name: point for point in entry_points(group=GROUP)}
    names = sorted(found, key=lambda name: (rank.get(name, 9), name))
    return {name: found[name].load()() for name in names}


def choose(word: str | None) -> list[BackendInfo]:
    """The backends a ``--backend`` argument means; ``None`` is every installed framework.

    Raises:
        UserError: an unknown word, or a backend whose framework is not installed.
    """
    known = backends()
    if word is None:
        chosen = [info for name, info in known.items() if name != "numpy" and info.installed()]
        if not chosen:
            hint = " or ".join(i.install for n, i in known.items() if n in ("torch", "mindspore"))
            raise UserError(
                f"no framework is installed; install one with {hint}, or use --backend numpy"
            )
        return chosen
    groups = {"both": ["torch", "mindspore"], "all": list(known)}
    names: list[str] = []
    for part in word.split(","):
        names += groups.get(part.strip(), [part.strip()])
    for name in names:
        if name not in known:
            raise UserError(f"unknown backend {name!r}{nearest(name, [*known, *groups])}")
        if not known[name].installed():
            raise UserError(
                f"backend {name!r} is not installed; install it with: {known[name].install}"
            )
    return [known[name] for name in dict.fromkeys(names)]
