"""What every file of this folder is given, and what it has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml_ms.model import Network


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a trial brings to a method.

    Attributes:
        model: with the plan's weights.
        optimizer: parameters → the arm's optimizer.
        criterion: logits, labels → mean loss.
        rank, processes: of this process, and how many there are; ``group`` is MindSpore's name of
            all of them.
        options: of the method, as `dualml.methods` has them.
    """

    model: Network
    optimizer: Callable[[Iterable[Any]], nn.Optimizer]
    criterion: nn.Cell
    rank: int
    processes: int
    group: str
    options: Mapping[str, Any]


class Base(nn.Cell):
    """One method; ``construct`` is an update with the samples of this process, and gives their mean
    loss before it. Its arguments are samples and labels, and masks where the model has Dropout: a
    tuple would be a constant of the graph.

    Attributes:
        weight: of this process's mean loss among those of all: 1 but in an uneven last batch.
        keeps: see `dualml.methods.driven.MethodTraining`.
        alters: the model that was given computes in another way from then on.
        masks: takes masks.
    """

    keeps: ClassVar[bool] = True
    alters: ClassVar[bool] = False
    masks: ClassVar[bool] = True
    optimizer: nn.Optimizer

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)  # parameters keep their names
        one = ms.Tensor(1.0, ms.float32)
        self.weight = ms.Parameter(one, name="share", requires_grad=False)

    def steps(self, batches: Sequence[tuple[np.ndarray, ...]]) -> list[ms.Tensor]:
        """An update for each batch; their mean losses."""
        return [self(*map(ms.Tensor.from_numpy, batch)) for batch in batches]
