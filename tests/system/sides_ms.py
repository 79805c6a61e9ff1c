"""Models for comparisons of two sides in MindSpore."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops


class Plain(nn.Cell):
    """A layer, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,), epsilon=1e-5)
        self.head = nn.Dense(8, 4)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.head(ops.relu(self.norm(self.fc(x))))


class Softmax(nn.Cell):
    """A layer and a softmax along the last axis."""

    axis = -1

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.softmax = nn.Dense(8, 8), nn.Softmax(axis=self.axis)
        self.head = nn.Dense(8, 4)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.head(self.softmax(self.fc(x)))


class OtherAxis(Softmax):
    """A softmax model whose softmax runs along the batch axis instead of the features."""

    axis = 0


class Aliased(nn.Cell):
    """A layer that overwrites a row of its result through a second name for it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(8, 8)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        y = self.fc(x)
        z = y
        z[0] = 0.0
        return y + z


class Aliasing(nn.Cell):
    """A model with such a layer in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.alias, self.head = nn.Dense(8, 8), Aliased(), nn.Dense(8, 4)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.head(self.alias(ops.relu(self.first(x))))


class Dropping(nn.Cell):
    """A layer and a Dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Dense(8, 4), nn.Dropout(p=0.5)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.drop(self.fc(x))
