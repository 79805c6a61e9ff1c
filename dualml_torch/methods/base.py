"""What every file of this folder is given, and what it has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dualml.backend import Array
from dualml_torch.model import Network


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a trial brings to a method.

    Attributes:
        model: with the plan's weights, on the device.
        optimizer: parameters → the arm's optimizer.
        criterion: logits, labels → mean loss.
        processes: how many there are.
        samples: x (N, …) and y of the training set, in the host's memory.
        batch: samples of a full update of all processes together.
        options: of the method, as `dualml.methods` has them.
        config: of its engine, the user's own, which agrees with the plan.
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


class Base(ABC):
    """One method.

    Attributes:
        weight: of this process's mean loss among those of all: 1 but in an uneven last batch.
        sharded, keeps: see `dualml.methods.driven.MethodTraining`.
    """

    weight: float = 1.0
    sharded: ClassVar[bool] = False
    keeps: ClassVar[bool] = True
    optimizer: Any

    @abstractmethod
    def __init__(self, given: Given) -> None: ...

    @abstractmethod
    def step(self, x: tuple[Tensor, ...], y: Tensor) -> Tensor:
        """One update with the samples of this process; their mean loss before it.

        Args:
            x: what the model takes: samples, and masks where it has Dropout.
        """

    def load(self, batches: Sequence[Array]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Deal out global batches, positions (n,), by a loader that the engine has prepared: of
        methods that are ``prepared`` in `methods.toml`.

        Returns:
            Positions, samples and labels of this process's part of each batch.
        """
        raise NotImplementedError

    @property
    def groups(self) -> Mapping[str, list[list[int]]]:
        """Kind of group → ranks of each, where an engine divides them."""
        return {}

    def tested(self, predict: Callable[[Tensor], Tensor], samples: int) -> Tensor | None:
        """What all processes have predicted, one row a sample that was tested, in any order; None:
        dualml deals the samples out and counts them. All ranks call it.

        Args:
            predict: positions (n,) of samples → their rows, (n, k).
        """
        return None

    def close(self) -> None:  # noqa: B027 — most engines take nothing
        """Give back what the engine has taken outside of the device."""

    @property
    def processes(self) -> int:
        """As many as the engine says there are."""
        there = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_world_size() if there else 1

    @property
    def scale(self) -> float | None:
        """What the loss is multiplied with; None where no update is ever passed over. Its owner is
        the method, Accelerate's optimizer, or DeepSpeed's, which looks for gradients that are not
        finite in float32, too."""
        scaler = getattr(self, "scaler", None) or getattr(self.optimizer, "scaler", None)
        if scaler is not None:
            return float(scaler.get_scale())
        scale = getattr(self.optimizer, "loss_scale", None)
        return None if scale is None else float(scale)

    def whole(self, model: nn.Module) -> dict[str, Tensor]:
        """Name → whole parameter of the model that was given, where each rank holds a part; all
        ranks call it."""
        return {name: p.detach() for name, p in model.named_parameters()}
