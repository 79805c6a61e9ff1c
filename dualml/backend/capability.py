"""Optional features of a training or a backend, and how the core asks for them.

A class declares a capability by naming it as a base class. The core asks with
`SupportsCapabilities.require_capability`, which returns the object as that class or raises
`Unsupported` with the reason. Nothing is recognised by the methods that an object happens to have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator, Implementation, RankContext
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend.memory import MemoryUsage
from dualml.backend.stage import BlockAttention, Segment, Stage
from dualml.backend.training_spec import Array, TrainingSpec
from dualml.common.errors import Unsupported
from dualml.common.former_members import keep_former_members

Layout = Sequence[Sequence[str]]
Tensor = Any


class Capability(ABC):
    """Feature that only some backends, trainings or stages implement."""

    #: Verb phrase that completes the message "this backend cannot …".
    description: ClassVar[str]


#: Type of a capability.
CapabilityT = TypeVar("CapabilityT", bound=Capability)


@keep_former_members
class SupportsCapabilities:
    """Base class of objects that can be asked for a capability.

    Attributes:
        missing_reasons: capability → why it is missing, where there is more to say than that it is.
    """

    missing_reasons: ClassVar[Mapping[type[Capability], str]] = {}

    def require_capability(self, kind: type[CapabilityT]) -> CapabilityT:
        """Return this object as an instance of the capability ``kind``.

        Raises:
            Unsupported: the class does not declare this capability; the message is the reason.
        """
        if isinstance(self, kind):
            return self
        raise Unsupported(
            self.missing_reasons.get(kind) or f"this backend cannot {kind.description}"
        )


# --- capabilities of a training -------------------------------------------------------------------


class ActivationCapture(Capability):
    """Shows the model's input and activations without computing a gradient; needed by ranks that
    share a batch and by the finder. Ranks that share a model call its methods together."""

    description = "show what its model is given and what the layers make of it"

    @abstractmethod
    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, dict[str, Array]]:
        """Return the SHA-256 of ``batch`` (`BatchTrace.data`) and layer name → output for the
        samples ``probe`` (`BatchTrace.activations`), by a forward pass in evaluation mode."""

    @abstractmethod
    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the samples and labels with these indices exactly as the model receives them."""


class MixedPrecision(Capability):
    """Trains in the mixed precision of `TrainingSpec.precision`, by the rule of
    `dualml.algorithms.precision`."""

    description = "compute in a lower precision than float32"

    @property
    @abstractmethod
    def precision_policy(self) -> Implementation:
        """Storage and arithmetic of the low-precision numbers in this training, for the run's
        records."""


class BlockwiseAttention(Capability):
    """A `Stage` whose attention processes keys and values block by block as they arrive from other
    ranks (`dualml.parallel.split.ring`)."""

    description = "attend to keys and values block by block"

    @abstractmethod
    def attention(self, layer: GroupedAttention, positions: Array) -> BlockAttention:
        """Return the block attention of ``layer`` for a rank that holds the sequence positions
        ``positions``, int64 in ascending order."""


class ActivationResharding(Capability):
    """A `Stage` that can free a segment's saved input and accept it again before the backward
    pass."""

    description = "drop what a segment took and take it again"

    @abstractmethod
    def free_activation(self, segment: int, micro: int) -> None:
        """Free the saved input of ``segment``, the top of its stack, for micro-batch ``micro``.
        Call it after `Stage.forward`; nothing else may use that tensor, and `restore_activation`
        must follow before `Stage.backward`."""

    @abstractmethod
    def restore_activation(self, segment: int, micro: int, x: Tensor) -> None:
        """Restore ``x`` as the saved input of ``segment`` for micro-batch ``micro``, which
        `free_activation` freed. Call it before `Stage.backward`."""


class MixedPrecisionStage(Capability):
    """A `Stage` that trains in the mixed precision of `TrainingSpec.precision`.

    It applies the same rule to its part of the model as an unsplit training applies to the whole,
    and converts low-precision values for the messages between ranks.

    Attributes:
        is_low_precision: whether the training's precision is lower than float32.
    """

    description = "train a part of a model in a lower precision than float32"
    is_low_precision: bool

    @property
    @abstractmethod
    def precision_policy(self) -> Implementation:
        """Storage and arithmetic of the low-precision numbers; see
        `MixedPrecision.precision_policy`."""

    @abstractmethod
    def to_wire(self, x: Tensor) -> Tensor:
        """Convert a low-precision tensor to the form in which it is sent: its own type, or its bits
        reinterpreted as another type that communicators support."""

    @abstractmethod
    def from_wire(self, x: Tensor) -> Tensor:
        """Convert a received tensor back to the low-precision type; the inverse of `to_wire`."""

    @abstractmethod
    def recv_buffer(self, shape: tuple[int, ...]) -> Tensor:
        """Return a contiguous, uninitialised tensor of the type that `to_wire` produces."""

    @abstractmethod
    def upcast(self, x: Tensor) -> Tensor:
        """Return a low-precision tensor as float32, for summation."""

    @abstractmethod
    def downcast(self, x: Tensor) -> Tensor:
        """Round a float32 sum to the low-precision type."""

    @abstractmethod
    def has_finite_gradients(self) -> bool:
        """Return whether all elements of the gradients are finite."""

    @abstractmethod
    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Apply the update of step ``step`` (from 1), which gives the learning rate, with the
        gradients, which may be overwritten, divided by ``scale``. ``made`` is its number (from 1)
        among the updates that were not skipped for infinite gradients, by which the optimizer
        corrects its moments."""


class ActivationRecomputation(Capability):
    """Saves only the inputs of the layers that `TrainingSpec.recompute` names and recomputes their
    activations in the backward pass; for a `Training` or a `Stage`."""

    description = "compute activations again in the backward pass"


class StateCarryover(Capability):
    """Carries the hidden state of stateful layers across the batches of `TrainingSpec.streams`
    (`dualml.algorithms.model.streams`), as part of `Training.state`; for a `Training` or a `Stage`,
    whose `pop_states` then returns the final states of its micro-batches."""

    description = "carry the state of recurrent layers over batches"


class GradientAccess(Capability):
    """Computes gradients and applies updates separately, which ranks that share a batch need."""

    description = "take an update apart, which ranks that share a batch need"

    @abstractmethod
    def make_buckets(self, layout: Layout) -> GradientBuckets:
        """Return the gradient buckets of this training. ``layout`` has one list per bucket: the
        canonical names of the parameters that it holds, in order."""


class CommOverlap(Capability):
    """Sends gradients while the backward pass computes the others."""

    description = "send gradients while others are computed"

    @abstractmethod
    def make_reducing_buckets(self, layout: Layout, comm: Communicator) -> ReducingBuckets:
        """Return buckets like those of `GradientAccess.make_buckets`, each of which is summed over
        the ranks of ``comm`` as soon as its gradients are computed."""


class FrameworkDataParallel(Capability):
    """Offers the framework's own data parallel training."""

    description = "train in parallel by itself"

    @abstractmethod
    def make_framework_buckets(self, comm: Communicator) -> ReducingBuckets:
        """Wrap this training's model in the framework's own data parallel module (PyTorch: DDP) and
        return buckets whose gradients that module sums over the ranks of ``comm``. Every parameter
        is a bucket, whose tensor may have the parameter's shape. All ranks call it.

        Raises:
            Unsupported: there is no process group.
        """


class DeviceReplication(Capability):
    """Splits a batch over several GPUs of one process."""

    description = "split a batch over the GPUs of one process"

    @abstractmethod
    def enable_replicas(self) -> None:
        """Make `Training.step` split its batch over the GPUs of this process from now on.

        Raises:
            Unsupported: there is only one device.
        """


class MemoryReport(Capability):
    """Counts the bytes that a `Training` or a `Stage` holds in memory."""

    description = "count the bytes it holds"

    @abstractmethod
    def measure_memory(self, batch: Any = None) -> MemoryUsage:
        """Return the bytes that this rank holds after an update.

        Counting changes nothing, sends no message and draws no random number, with one exception:
        an engine's method makes an update with ``batch``. All ranks call it then, and load the
        weights anew after it.

        Args:
            batch: as for `Training.step`; the activations of its first chunk are counted too, where
                the framework shows them. None leaves them out. A `Stage` ignores it and counts
                none; a split model ignores it and reports the peak of its last count.
        """


# --- capabilities of a backend --------------------------------------------------------------------


class ProcessGroups(Capability):
    """Joins ranks that are processes, for backends with ``BackendInfo.ranks = "processes"``."""

    description = "join ranks that are processes"

    @abstractmethod
    def connect(self, place: RankContext) -> Communicator:
        """Join the other ranks of a trial and return the communicator.

        Raises:
            CommunicationError: a rank did not join in time.
            UserError: a rendezvous that this backend does not have, or that does not fit.
            Unsupported: this device cannot hold so many ranks.
        """


class PipelineStages(Capability):
    """Trains one rank's part of a split model."""

    description = "train a part of a model"

    @abstractmethod
    def stage(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> Stage:
        """Return the part of a split model that one rank trains.

        Args:
            segments: its layers, stage by stage.
            recipe: specification of the whole model's training; the weights are passed to
                `Stage.load`.
            first: whether the first segment receives the samples.
            last: whether the last segment ends in the loss.
        """


class DevicePlacement(Capability):
    """Places the stages of a model on several devices of one process."""

    description = "put the stages of a model on several devices of one process"

    @abstractmethod
    def placed_stage(
        self,
        segments: Sequence[Segment],
        recipe: TrainingSpec,
        devices: Sequence[str],
        comm: Communicator,
    ) -> PlacedStage:
        """Build all stages of a model, each on its device; all processes of ``comm`` call it.

        Args:
            segments: one for each stage.
            recipe: specification of the whole model's training; the weights are passed to
                `Stage.load`.
            devices: device of each segment, by the names of `dualml.backend.devices`.
            comm: communicator of the processes that each hold the whole model.

        Raises:
            Unsupported: a device that does not exist, or that this framework cannot use here.
        """


class PlacedStage(Capability):
    """A `Stage` whose segments lie on several devices of its process.

    Attributes:
        transfers_by: name of the call that copies a tensor between devices, for the records.
        sums_by: name of the framework's wrapper that sums the gradients of several processes in the
            backward pass of the last micro-batch; empty where the caller sums them.
    """

    description = "move values between devices of one process"
    transfers_by: str
    sums_by: str = ""

    @abstractmethod
    def transfer(self, x: Tensor, segment: int) -> Tensor:
        """Return the tensor ``x`` on the device of a segment: a copy, but an accelerator that has
        it already may share it."""

    def expect_last(self, micro: int) -> None:
        """Announce, before an update, which micro-batch (from 0) is the last one with samples; -1
        means that there is none, so that the gradients of this process are zero. All processes call
        it: with -1, a wrapper that sums gradients sums the zeros at once. This default does
        nothing."""


class PeakMemory(Capability):
    """Reports how much device memory the framework's allocator has handed out."""

    description = "tell how much of the device's memory is given out"

    @abstractmethod
    def measure_peak(self, work: Callable[[], object]) -> int | None:
        """Run ``work`` and return the peak bytes allocated on the device meanwhile, older
        allocations included; None, without running it, where the allocator reports nothing."""


class GradientBuckets(Protocol):
    """One update of a `Training` in steps; the weights change only in `update` and `assign`."""

    def gradient(self, batch: NDArray[Any], factor: float) -> tuple[Any, list[Tensor]]:
        """Compute the mean loss and the gradient of the samples with the indices ``batch``; return
        the lazy loss (see `Backend.materialize_losses`) and one 1-D tensor per bucket.

        The tensors hold ``factor`` times the batch's mean gradient, times `Training.loss_scale`,
        which `update` divides out again. An empty batch has the loss None and a zero gradient.
        Callers may overwrite the tensors; the next call does.
        """

    def update(self, gradients: Sequence[Tensor], step: int) -> None:
        """Apply update ``step`` (from 1) of the optimizer with these gradients, one tensor per
        bucket, divided by the loss scale; a loss scaler skips an update that is not finite. Call
        `gradient` first."""

    def parameters(self) -> list[Tensor]:
        """Return copies of the parameters, one tensor per bucket."""

    def assign(self, parameters: Sequence[Tensor]) -> None:
        """Replace the parameters by these tensors, one per bucket."""

    def unflatten(self, tensors: Sequence[Tensor]) -> Mapping[str, NDArray[Any]]:
        """Split bucket tensors into copies under the parameters' canonical names; values stay as
        they are, also those multiplied by a loss scale."""

    def bucket_bytes(self) -> int:
        """Return the total bytes of the buckets, without buckets that are the memory of the
        parameters' gradients itself; called only where the training is a `MemoryReport`."""


class ReducingBuckets(GradientBuckets, Protocol):
    """Gradient buckets that are summed over the ranks while the gradient is computed. All ranks
    call `gradient`, also with an empty batch, and `wait_reduction`."""

    #: What sums them, for the records: ``torch.nn.parallel.DistributedDataParallel``.
    detail: str

    def wait_reduction(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Wait until the tensors that `gradient` returned hold the sum over all ranks, each rank's
        gradient times its own factor, and return them."""


class RemoteProcedureCalls(Capability):
    """Executes a model split by layer by calling its stages with remote procedure calls."""

    description = "call remote procedures"

    @abstractmethod
    def rpc(self, plan: Any, comm: Communicator, recipe: TrainingSpec) -> Any:
        """Return the `SplitModel` of `dualml.parallel.split.remote` as this rank sees it; all ranks
        call it.

        Args:
            plan: the `SplitPlan` of `dualml.parallel.split.plan` that says which rank has which
                stage.
            comm: communicator of all ranks.
            recipe: specification of the whole model's training.

        Raises:
            Unsupported: this build of the framework has no remote procedure calls.
        """
