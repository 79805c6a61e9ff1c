"""What a training or a backend can do beyond what every one must, and how it is asked for it.

An ability is declared by naming it as a base class and asked for with `Able.ability`, which returns
the object as that class or raises `Unsupported` with the reason. Nothing is recognised by the
methods it happens to have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from numpy.typing import NDArray

from dualml.backend.memory import Memory
from dualml.backend.recipe import Array, Recipe
from dualml.backend.stage import BlockAttention, Segment, Stage
from dualml.communicator import Communicator, How, Place
from dualml.errors import Unsupported
from dualml.model.decoder import GroupedAttention

Layout = Sequence[Sequence[str]]
Tensor = Any


class Ability(ABC):
    """Something that only some can do."""

    #: Completes "this backend cannot …".
    does: ClassVar[str]


A = TypeVar("A", bound=Ability)


class Able:
    """Who can be asked for abilities.

    Attributes:
        lacks: ability → why it is missing, where there is more to say than that it is.
    """

    lacks: ClassVar[Mapping[type[Ability], str]] = {}

    def ability(self, kind: type[A]) -> A:
        """This object as ``kind``.

        Raises:
            Unsupported: it has not declared this ability; the text is the reason.
        """
        if isinstance(self, kind):
            return self
        raise Unsupported(self.lacks.get(kind) or f"this backend cannot {kind.does}")


# --- of a training --------------------------------------------------------------------------------


class Observable(Ability):
    """Shows, without a gradient, what goes into the model; for ranks that share a batch and for the
    finder."""

    does = "show what its model is given and what the layers make of it"

    @abstractmethod
    def look(self, batch: Array, probe: Array) -> tuple[str, dict[str, Array]]:
        """`Trace.data` of ``batch`` and `Trace.activations` of the samples ``probe``."""

    @abstractmethod
    def given(self, batch: Array) -> tuple[Array, Array]:
        """The samples and labels of these indices as the model is given them."""


class Mixed(Ability):
    """Computes as `Recipe.precision` says, by the rule of `dualml.precision`."""

    does = "compute in a lower precision than float32"

    @property
    @abstractmethod
    def held(self) -> How:
        """How numbers of the lower type are held and multiplied, for the records."""


class Attending(Ability):
    """A `Stage` whose attention takes keys and values block by block, as they come from other ranks
    (`dualml.split.ring`)."""

    does = "attend to keys and values block by block"

    @abstractmethod
    def attention(self, layer: GroupedAttention, places: Array) -> BlockAttention:
        """That of a layer on a rank that has the positions ``places``, in ascending order."""


class Regathering(Ability):
    """A `Stage` that need not keep the value that a segment took, if it is given again."""

    does = "drop what a segment took and take it again"

    @abstractmethod
    def forget(self, segment: int, micro: int) -> None:
        """After `Stage.forward`: the top of the stack that the segment took is kept no longer. It
        was a tensor of its own, and nobody needs it any more."""

    @abstractmethod
    def remember(self, segment: int, micro: int, x: Tensor) -> None:
        """Before `Stage.backward`: here it is again."""


class MixedStage(Ability):
    """A `Stage` that computes as `Recipe.precision` says, its part of the model by the same rule as
    the whole; and how values of the lower type pass from rank to rank.

    Attributes:
        lower: whether the recipe's precision is a lower one.
    """

    does = "train a part of a model in a lower precision than float32"
    lower: bool

    @property
    @abstractmethod
    def how(self) -> How:
        """`Mixed.held`."""

    @abstractmethod
    def packed(self, x: Tensor) -> Tensor:
        """Numbers of the lower type as they travel: in their own type, or their bits in another one
        that communicators know."""

    @abstractmethod
    def unpacked(self, x: Tensor) -> Tensor:
        """What `packed` was given."""

    @abstractmethod
    def to_receive(self, shape: tuple[int, ...]) -> Tensor:
        """A contiguous tensor like those of `packed`, with arbitrary content."""

    @abstractmethod
    def widened(self, x: Tensor) -> Tensor:
        """Numbers of the lower type in float32, to be added up."""

    @abstractmethod
    def rounded(self, x: Tensor) -> Tensor:
        """A sum of what was `widened`, in the lower type."""

    @abstractmethod
    def finite(self) -> bool:
        """Whether all numbers of the gradients are."""

    @abstractmethod
    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Update ``step`` of the optimizer, the ``made``-th that is made, with the gradients over
        ``scale``."""


class Recomputing(Ability):
    """Keeps of the layers that `Recipe.recompute` names only what goes into them, and computes them
    again in the backward pass; a `Training` or a `Stage`."""

    does = "compute activations again in the backward pass"


class Carrying(Ability):
    """Carries the state of stateful layers over the batches of `Recipe.streams`
    (`dualml.model.streams`), as a part of `Training.state`; a `Training` or a `Stage`, which then
    tells with `states` what micro-batches ended with."""

    does = "carry the state of recurrent layers over batches"


class Divisible(Ability):
    """Makes an update in parts, so that ranks can share its batch."""

    does = "take an update apart, which ranks that share a batch need"

    @abstractmethod
    def pieces(self, layout: Layout) -> Pieces:
        """One update in parts, with the parameters in the buckets of ``layout``."""


class Overlapping(Ability):
    """Sends a gradient while it computes the next."""

    does = "send gradients while others are computed"

    @abstractmethod
    def overlapping(self, layout: Layout, comm: Communicator) -> Summing:
        """Like `Divisible.pieces`, each bucket sent as soon as its gradients are there."""


class NativeParallel(Ability):
    """The framework's own data parallel training."""

    does = "train in parallel by itself"

    @abstractmethod
    def native(self, comm: Communicator) -> Summing:
        """It, made for this model alone.

        Raises:
            Unsupported: there is no group of ranks.
        """


class Replicable(Ability):
    """One process that splits a batch over its GPUs."""

    does = "split a batch over the GPUs of one process"

    @abstractmethod
    def replicas(self) -> None:
        """From now on `Training.step` splits its batch.

        Raises:
            Unsupported: there is one device only.
        """


class Weighable(Ability):
    """Counts the bytes it holds; a `Training` or a `Stage`."""

    does = "count the bytes it holds"

    @abstractmethod
    def memory(self, batch: Any = None) -> Memory:
        """As it is after an update. Nothing is changed by counting, no
        message is sent, and no random number drawn.

        Args:
            batch: as `Training.step` gets it, for the activations; None leaves them out.
        """


# --- of a backend ---------------------------------------------------------------------------------


class Grouping(Ability):
    """Joins ranks that are processes: `BackendInfo.ranks` is ``processes``."""

    does = "join ranks that are processes"

    @abstractmethod
    def connect(self, place: Place) -> Communicator:
        """Join the other ranks of a trial.

        Raises:
            CommunicationError: a rank did not come in time.
            Unsupported: this device cannot hold so many ranks.
        """


class Staging(Ability):
    """Trains parts of a model that ranks share."""

    does = "train a part of a model"

    @abstractmethod
    def stage(
        self, segments: Sequence[Segment], recipe: Recipe, *, first: bool, last: bool
    ) -> Stage:
        """What one rank has of a split model.

        Args:
            segments: its layers, stage by stage.
            recipe: of the whole model; the weights come with `Stage.load`.
            first: whether the first of them takes the samples.
            last: whether the last of them ends in the loss.
        """


class Placing(Ability):
    """Puts the stages of a model on several devices of one process."""

    does = "put the stages of a model on several devices of one process"

    @abstractmethod
    def placed_stage(
        self,
        segments: Sequence[Segment],
        recipe: Recipe,
        devices: Sequence[str],
        comm: Communicator,
    ) -> PlacedStage:
        """Make all stages of a model, each on its device.

        Args:
            segments: one of each stage.
            recipe: of the whole model; the weights come with `Stage.load`.
            devices: of each segment, by the names of `dualml.backend.devices`.
            comm: of the processes that each have the whole model.

        Raises:
            Unsupported: a device that is not there, or that this framework cannot have here.
        """


class PlacedStage(Ability):
    """A `Stage` whose segments lie on several devices of its process.

    Attributes:
        transfers_by: the call that moves a value from device to device, for the records.
        sums_by: the framework's wrapper that adds up the gradients of several processes in the
            backward pass of the last micro-batch; empty where the caller adds them up.
    """

    does = "move values between devices of one process"
    transfers_by: str
    sums_by: str = ""

    @abstractmethod
    def transfer(self, x: Tensor, segment: int) -> Tensor:
        """Copy a value to the device of a segment."""

    def expect_last(self, micro: int) -> None:
        """Take notice, before an update, of its last micro-batch with samples; -1: there is none,
        and the gradients of this process are zero."""


class Metered(Ability):
    """Tells how much of the device's memory is given out."""

    does = "tell how much of the device's memory is given out"

    @abstractmethod
    def peak(self, work: Callable[[], object]) -> int | None:
        """Most bytes at once on the device while ``work`` runs, of whatever age; None, and nothing
        runs, where no allocator tells."""


class Pieces(Protocol):
    """One update of a `Training` in parts; the weights change only in `update` and `assign`."""

    def gradient(self, batch: NDArray[Any], factor: float) -> tuple[Any, list[Tensor]]:
        """Lazy mean loss of ``batch`` and ``factor`` times its mean gradient, one tensor a bucket;
        times `Training.scale`, which `update` takes off again.

        An empty batch has the loss None and the gradient zero. The tensors may be overwritten by
        whoever receives them, and are overwritten by the next call.
        """

    def update(self, gradients: Sequence[Tensor], step: int) -> None:
        """Update ``step`` of the optimizer with these gradients."""

    def parameters(self) -> list[Tensor]:
        """Copies of the parameters, one tensor a bucket."""

    def assign(self, parameters: Sequence[Tensor]) -> None:
        """Replace the parameters."""

    def named(self, tensors: Sequence[Tensor]) -> Mapping[str, NDArray[Any]]:
        """Copies of the parts of bucket tensors under their canonical names."""

    def held(self) -> int:
        """Bytes of the buckets, where they are not the gradients' own; only asked where the
        training is `Weighable`."""


class Summing(Pieces, Protocol):
    """Pieces whose gradient is added up over the ranks while it is computed."""

    #: How, for the records: ``torch.nn.parallel.DistributedDataParallel``.
    detail: str

    def settle(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """What `gradient` returned, once it is the sum over all ranks of their gradients, each
        times its own factor."""


class RemoteCalls(Ability):
    """Executes a model split by layer by calling its stages with remote procedure calls."""

    does = "call remote procedures"

    @abstractmethod
    def rpc(self, plan: Any, comm: Communicator, recipe: Recipe) -> Any:
        """Return the `SplitModel` of `dualml.split.remote` as this rank sees it.

        Args:
            plan: the `SplitPlan` of `dualml.split.plan` that says which rank has which stage.

        Raises:
            Unsupported: this build of the framework has no remote procedure calls.
        """
