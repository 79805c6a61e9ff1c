"""The interface of a training method: what it is given, and what it must provide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml_ms.algorithms.model import Network


@dataclass(frozen=True, kw_only=True)
class MethodContext:
    """The inputs of a method: model, optimizer factory, loss and options of a trial.

    Attributes:
        model: with the plan's weights.
        optimizer: parameters → the arm's optimizer.
        criterion: logits, labels → mean loss.
        rank, processes: of this process, and the number of processes; ``group`` is MindSpore's name
            of the group of all of them.
        options: options of the method, see `dualml.experiment.methods`.
    """

    model: Network
    optimizer: Callable[[Iterable[Any]], nn.Optimizer]
    criterion: nn.Cell
    rank: int
    processes: int
    group: str
    options: Mapping[str, Any]


class TrainingMethod(nn.Cell):
    """Base class of the training methods; ``construct``, which all ranks call, makes an update with
    the samples of this process and returns their mean loss before it. Its arguments are samples and
    labels, and masks if the model has Dropout: a tuple would be a constant of the graph.

    Attributes:
        weight: weight of this process's mean loss in the mean over all processes: 1 except in an
            uneven last batch.
        is_resumable: see `dualml.experiment.methods.engine.MethodTraining`.
        changes_model: whether the given model computes differently from then on.
        takes_masks: whether ``construct`` accepts masks.
    """

    is_resumable: ClassVar[bool] = True
    changes_model: ClassVar[bool] = False
    takes_masks: ClassVar[bool] = True
    optimizer: nn.Optimizer

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        one = ms.Tensor(1.0, ms.float32)
        self.weight = ms.Parameter(one, name="share", requires_grad=False)

    def run_steps(self, batches: Sequence[tuple[np.ndarray, ...]]) -> list[ms.Tensor]:
        """Make an update for each batch in turn, a tuple of the arrays of samples, labels and
        masks; return their mean losses before it."""
        return [self(*map(ms.Tensor.from_numpy, batch)) for batch in batches]
