"""The hidden state that recurrent layers carry from one batch to the next.

A text is cut into as many streams as a batch has samples: update t has window t of every stream, so
that each sample goes on where the one in its place ended (`batchify` of PyTorch's example
``word_language_model``). The state is detached: no gradient flows into the batch before.

States are found by the number of a sample, not by its place in the batch: a rank that has a part of
the batch, micro-batches, and a batch whose samples stand in another order find the same ones.

Source: Zaremba, Sutskever and Vinyals 2014, "Recurrent Neural Network Regularization", sec. 4.1;
truncated backpropagation through time: Williams and Peng 1990, "An Efficient Gradient-Based
Algorithm for On-Line Training of Recurrent Network Trajectories".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError
from dualml.model.base import Layer
from dualml.model.dropout import masks
from dualml.model.recurrent import Recurrent
from dualml.model.spec import ModelSpec

Array = NDArray[Any]
#: Of the state of a training: layer → states of all streams, (streams, S, H).
SLOT = "hidden"


def streams(samples: int, batch: int) -> NDArray[np.int32]:
    """The samples of every update of an epoch, (updates, ``batch``): each column is a stream of
    consecutive ones. What is left at the end of ``samples`` is dropped.

    Raises:
        UserError: fewer samples than a batch has.

    Example:
        >>> streams(7, 3)
        array([[0, 2, 4],
               [1, 3, 5]], dtype=int32)
    """
    length = samples // batch
    if not length:
        raise UserError(
            f"a batch of {batch} streams needs at least {batch} windows of the text; there are "
            f"{samples}: lower batch_size or data.length, or raise data.train"
        )
    return np.arange(batch * length, dtype=np.int32).reshape(batch, length).T


def carries(layer: Layer) -> bool:
    """Whether a layer begins a batch with the state that the batch before it ended with."""
    return isinstance(layer, Recurrent) and layer.stateful


class Hidden:
    """The states of the stateful layers of a model, of every stream.

    Args:
        layers: of the model, or of a part of it.
        order: as of `streams`; None: every batch begins with zeros, and nothing is kept.
        dtype: of the states.

    Attributes:
        fresh: streams that a batch has come to since the states were loaded.
    """

    def __init__(
        self, layers: Sequence[tuple[str, Layer]], order: Array | None, dtype: Any = np.float32
    ) -> None:
        self.dtype = dtype
        self.shapes = {
            name: (layer.states, layer.hidden)
            for name, layer in layers
            if isinstance(layer, Recurrent) and layer.stateful
        }
        self.kept = order is not None
        count = 0 if order is None else order.shape[1]
        self.stream = np.zeros(1 if order is None else int(order.max()) + 1, np.int64)
        self.first = np.ones(len(self.stream), bool)  # of its stream
        if order is not None:
            self.stream[order] = np.arange(count)
            self.first[order[1:]] = False
        self.tables = {
            name: np.zeros((count, *shape), dtype) for name, shape in self.shapes.items()
        }
        self.fresh = np.zeros(count, bool)

    def before(self, samples: Array) -> dict[str, Array]:
        """Layer → the states that the samples begin with, (B, S, H): zeros at the begin of a
        stream."""
        if not self.kept:
            return {
                name: np.zeros((len(samples), *s), self.dtype) for name, s in self.shapes.items()
            }
        there = ~self.first[samples]
        rows = self.stream[samples]
        return {name: table[rows] * there[:, None, None] for name, table in self.tables.items()}

    def after(self, samples: Array, states: Mapping[str, Array]) -> None:
        """Keep the states that the samples ended with."""
        if self.kept and states:
            rows = self.stream[samples]
            self.fresh[rows] = True
            for name, state in states.items():
                self.tables[name][rows] = state

    def state(self) -> dict[str, dict[str, Array]]:
        """Copies, as a part of the state of a training."""
        return {SLOT: {name: table.copy() for name, table in self.tables.items()}}

    def load(self, state: Mapping[str, Mapping[str, Array]]) -> dict[str, Any]:
        """Take that part from what is to be loaded, zeros where it is missing; the rest of it."""
        own = state.get(SLOT, {})
        self.fresh[:] = False
        for name, table in self.tables.items():
            table[...] = own.get(name, 0)
        return {slot: named for slot, named in state.items() if slot != SLOT}


def beside(
    spec: ModelSpec, seed: int, step: int, samples: Array, hidden: Hidden | None
) -> dict[str, Array]:
    """Layer → what it takes beside its input in update ``step``, in the order of the layers: masks
    of Dropout (`dualml.model.dropout`), and the states that stateful layers begin with."""
    own = masks(spec, seed, step, samples)
    if hidden is None:
        return {**own}
    every: dict[str, Array] = {**own, **hidden.before(samples)}
    return {name: every[name] for name, _ in spec.layers if name in every}


def merged(own: Hidden, tables: Sequence[Mapping[str, Array]], fresh: Sequence[Array]) -> None:
    """Put together what ranks have: of every stream and layer the states of a rank that came to it.

    Args:
        own: where they are put.
        tables: rank → its layers' states, those of layers that it has not left out.
        fresh: rank → `Hidden.fresh`.
    """
    for name, table in own.tables.items():
        for there, came in zip(tables, fresh, strict=True):
            if name in there:
                table[came] = there[name][came]
