"""Models for comparisons block by block, in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Layer(nn.Cell):
    """A residual block with a norm."""

    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm((8,), epsilon=epsilon), nn.Dense(8, 8)

    def construct(self, x: Any, table: Any) -> Any:
        return x + ops.tanh(self.fc(self.norm(x))) * table


class Net(nn.Cell):
    """An embedding, two blocks that take a table, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.layers = nn.CellList([Layer() for _ in range(2)])
        self.table = ms.Tensor(np.linspace(0.5, 1.5, 8).astype(np.float32))
        self.head = nn.Dense(8, 10)

    def construct(self, tokens: Any) -> Any:
        x = self.emb(tokens)
        for layer in self.layers:
            x = layer(x, self.table)
        return self.head(x)


class Epsilon(Net):
    """A `Net` whose second norm has another epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1] = Layer(1e-2)


class StoppedLayer(Layer):
    """A block through whose branch no gradient flows."""

    def construct(self, x: Any, table: Any) -> Any:
        return x + ops.stop_gradient(ops.tanh(self.fc(self.norm(x)))) * table


class RaisingLayer(Layer):
    """A block that cannot be computed."""

    def construct(self, x: Any, table: Any) -> Any:
        raise ValueError("no such rotation")


class Raising(Net):
    """A `Net` whose second block raises an error."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1] = RaisingLayer()


class Detached(Net):
    """A `Net` whose first block has no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[0] = StoppedLayer()


class Tied(Net):
    """A `Net` whose head has the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Dense(8, 10, has_bias=False)
        self.head.weight = self.emb.embedding_table


class DroppingLayer(Layer):
    """A block with Dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(p=0.25)

    def construct(self, x: Any, table: Any) -> Any:
        return super().construct(self.drop(x), table)


class Dropping(Net):
    """A `Net` with Dropout inside of its blocks and behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([DroppingLayer() for _ in range(2)])
        self.drop = nn.Dropout(p=0.5)

    def construct(self, tokens: Any) -> Any:
        x = self.emb(tokens)
        for layer in self.layers:
            x = self.drop(layer(x, self.table))
        return self.head(x)


def make_slower_adam(parameters: Any) -> nn.Optimizer:
    """Make MindSpore's Adam with another first beta, which the first update does not show."""
    return nn.Adam(parameters, learning_rate=1e-3, beta1=0.95)


def make_sgd(parameters: Any) -> nn.Optimizer:
    """Make MindSpore's SGD, which has other states than Adam."""
    return nn.SGD(parameters, learning_rate=1e-3)
