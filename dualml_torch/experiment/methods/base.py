"""The interface of a training method: what it is given, and what it must provide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dualml.backend import Array
from dualml_torch.algorithms.model import Network


@dataclass(frozen=True, kw_only=True)
class MethodContext:
    """The inputs of a method: model, optimizer factory, loss, data and options of a trial.

    Attributes:
        model: with the plan's weights, on the device.
        optimizer: parameters → the arm's optimizer.
        criterion: logits, labels → mean loss.
        processes: number of processes.
        samples: x (N, …) and y of the training set, in host memory.
        batch: samples of a full update of all processes together.
        options: options of the method, see `dualml.experiment.methods`.
        config: the user's own configuration of the engine, consistent with the plan.
    """

    model: Network
    optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer]
    criterion: Callable[[Tensor, Tensor], Tensor]
    device: torch.device
    processes: int
    samples: tuple[Tensor, Tensor]
    batch: int
    options: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)


class TrainingMethod(ABC):
    """Base class of the training methods.

    Attributes:
        weight: weight of this process's mean loss in the mean over all processes: 1 except in an
            uneven last batch.
        sharded, is_resumable: see `dualml.experiment.methods.engine.MethodTraining`.
    """

    weight: float = 1.0
    sharded: ClassVar[bool] = False
    is_resumable: ClassVar[bool] = True
    optimizer: Any

    @abstractmethod
    def __init__(self, context: MethodContext) -> None: ...

    @abstractmethod
    def step(self, x: tuple[Tensor, ...], y: Tensor) -> Tensor:
        """Make one update with the samples of this process and return their mean loss before it, a
        detached tensor; a pipeline returns that of all processes. All ranks call it.

        Args:
            x: inputs of the model: samples, and masks if it has Dropout.
            y: labels.
        """

    def load_batches(self, batches: Sequence[Array]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Distribute global batches, each the positions (n,) of samples, by a loader that the
        engine has prepared. Only methods that are ``prepared`` in `methods.toml` implement it; this
        base class raises NotImplementedError.

        Returns:
            An iterator over (positions, samples, labels) of this process's part of each batch.
        """
        raise NotImplementedError

    @property
    def groups(self) -> Mapping[str, list[list[int]]]:
        """Ranks of each group by kind of group, if an engine forms groups; empty by default."""
        return {}

    def engine_evaluate(self, predict: Callable[[Tensor], Tensor], samples: int) -> Tensor | None:
        """Return the predictions of all processes, one row per tested sample in any order; None:
        dualml distributes the samples and counts. All ranks call it.

        Args:
            predict: positions (n,) of samples → their rows, (n, k).
        """
        return None

    def close(self) -> None:  # noqa: B027 — most engines take nothing
        """Release what this method holds outside of the device, before it is made anew and at the
        end of a trial; may be called twice. Nothing by default."""

    @property
    def processes(self) -> int:
        """Number of processes in torch's process group, 1 without one; engines with a group of
        their own report theirs."""
        there = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_world_size() if there else 1

    @property
    def loss_scale(self) -> float | None:
        """Current loss scale; None if no update is ever skipped. The method, Accelerate's
        optimizer, or DeepSpeed's holds it; DeepSpeed checks for non-finite gradients in float32,
        too."""
        scaler = getattr(self, "scaler", None) or getattr(self.optimizer, "scaler", None)
        if scaler is not None:
            return float(scaler.get_scale())
        scale = getattr(self.optimizer, "loss_scale", None)
        return None if scale is None else float(scale)

    def gather_parameters(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the full parameters of the model by name, detached; all ranks call it. By default
        they are taken as they are; methods that shard them gather them here."""
        return {name: p.detach() for name, p in model.named_parameters()}
