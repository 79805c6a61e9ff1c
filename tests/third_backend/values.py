"""Float32 arrays with reverse-mode automatic differentiation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Back = Callable[[Array], Array]
NUMBERS = itertools.count()


class Value:
    """An array and, for each value it was computed from, the function that maps its gradient to
    theirs."""

    def __init__(self, data: Any, parents: Sequence[tuple[Value, Back]] = ()) -> None:
        self.data = np.asarray(data, np.float32)
        self.parents, self.number = tuple(parents), next(NUMBERS)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def __add__(self, other: Any) -> Value:
        b = lift(other)
        return Value(
            self.data + b.data,
            [(self, lambda g: fit(g, self.shape)), (b, lambda g: fit(g, b.shape))],
        )

    def __mul__(self, other: Any) -> Value:
        b = lift(other)
        return Value(
            self.data * b.data,
            [
                (self, lambda g: fit(g * b.data, self.shape)),
                (b, lambda g: fit(g * self.data, b.shape)),
            ],
        )

    def __sub__(self, other: Any) -> Value:
        return self + lift(other) * -1

    def __matmul__(self, b: Value) -> Value:
        return Value(
            self.data @ b.data,
            [
                (self, lambda g: fit(g @ b.data.swapaxes(-1, -2), self.shape)),
                (b, lambda g: fit(self.data.swapaxes(-1, -2) @ g, b.shape)),
            ],
        )

    def __getitem__(self, key: Any) -> Value:
        def scatter_gradient(g: Array) -> Array:
            whole = np.zeros(self.shape, np.float32)
            np.add.at(whole, key, g)
            return whole

        return Value(self.data[key], [(self, scatter_gradient)])

    def reshape(self, *shape: int) -> Value:
        return Value(self.data.reshape(shape), [(self, lambda g: g.reshape(self.shape))])

    def transpose(self, *axes: int) -> Value:
        back = np.argsort(axes)
        return Value(self.data.transpose(axes), [(self, lambda g: g.transpose(back))])

    def sum(self, axis: int) -> Value:
        """Return the sum along ``axis``, which stays with length 1."""
        total = self.data.sum(axis=axis, keepdims=True)
        return Value(total, [(self, lambda g: np.broadcast_to(g, self.shape))])

    def mean(self, axis: int) -> Value:
        return self.sum(axis) * (1 / self.shape[axis])

    def map(self, y: Array, slope: Array) -> Value:
        """Return the value ``y``, whose elementwise derivative is ``slope``."""
        return Value(y, [(self, lambda g: g * slope)])

    def tanh(self) -> Value:
        y = np.tanh(self.data)
        return self.map(y, 1 - y * y)

    def sigmoid(self) -> Value:
        y = 0.5 + 0.5 * np.tanh(0.5 * self.data)
        return self.map(y, y * (1 - y))

    def relu(self) -> Value:
        return self.map(np.maximum(self.data, 0), np.float32(self.data > 0))

    def exp(self) -> Value:
        y = np.exp(self.data)
        return self.map(y, y)

    def log(self) -> Value:
        return self.map(np.log(self.data), 1 / self.data)

    def power(self, exponent: float) -> Value:
        y = self.data**exponent
        return self.map(y, exponent * y / self.data)


def lift(x: Any) -> Value:
    """Return ``x`` as a `Value`; arrays and numbers become constants."""
    return x if isinstance(x, Value) else Value(x)


def fit(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum the gradient of a broadcast value over its copies, back to ``shape``."""
    extra = g.ndim - len(shape)
    g = g.sum(axis=tuple(range(extra))) if extra else g
    wide = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    return g.sum(axis=wide, keepdims=True) if wide else g


def stack(parts: Sequence[Value], axis: int) -> Value:
    def take_gradient(i: int) -> Back:
        return lambda g: np.take(g, i, axis)

    data = np.stack([part.data for part in parts], axis)
    return Value(data, [(part, take_gradient(i)) for i, part in enumerate(parts)])


def backward(ends: Sequence[tuple[Value, Array]], wanted: Sequence[Value]) -> list[Array]:
    """Return the gradients of the ``wanted`` values, from (value, gradient) pairs in ``ends``."""
    flows: dict[int, Array] = {}
    waiting: dict[int, Value] = {}

    def arrive(value: Value, g: Array) -> None:
        flows[value.number] = flows[value.number] + g if value.number in flows else g
        waiting[value.number] = value

    for value, g in ends:
        arrive(value, np.asarray(g, np.float32))
    while waiting:
        value = waiting.pop(max(waiting))  # all that was computed from it is done
        for parent, back in value.parents:
            arrive(parent, back(flows[value.number]))
    return [flows.get(v.number, np.zeros(v.shape, np.float32)) for v in wanted]
