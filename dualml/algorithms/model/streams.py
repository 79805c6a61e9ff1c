"""Hidden state that recurrent layers carry from one batch to the next.

A text is split into as many streams as a batch has samples: update t has window t of every stream,
so that each sample continues where the one in its place ended (`batchify` of PyTorch's example
``word_language_model``). The state is detached: no gradient flows into the previous batch.

States are looked up by the number of a sample, not by its place in the batch: a rank with part of
the batch, micro-batches, and a batch in another order all find the same ones.

Source: Zaremba, Sutskever and Vinyals 2014, "Recurrent Neural Network Regularization", sec. 4.1;
truncated backpropagation through time: Williams and Peng 1990, "An Efficient Gradient-Based
Algorithm for On-Line Training of Recurrent Network Trajectories".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.dropout import dropout_masks
from dualml.algorithms.model.recurrent import RecurrentLayer
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.array_types import Array
from dualml.common.errors import UserError

#: Key of the hidden states in a training's state: layer → states of all streams, (streams, S, H).
SLOT = "hidden"


def stream_indices(samples: int, batch: int) -> NDArray[np.int32]:
    """Return the samples of every update of an epoch, int32 (updates, ``batch``): each column is a
    stream of consecutive samples. The remainder of ``samples`` is dropped.

    Raises:
        UserError: fewer samples than a batch has.

    Example:
        >>> stream_indices(7, 3)
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


def carries_state(layer: Layer) -> bool:
    """Return whether a layer starts a batch from the final state of the previous batch."""
    return isinstance(layer, RecurrentLayer) and layer.stateful


class HiddenStates:
    """States of a model's stateful layers, for every stream.

    Args:
        layers: layers of the model, or of a part of it.
        order: samples of every update, as `stream_indices` returns them; None: every batch starts
            from zeros, and nothing is stored.
        dtype: type of the states.

    Attributes:
        fresh: for each stream, whether a batch has used it since the states were loaded.
    """

    def __init__(
        self, layers: Sequence[tuple[str, Layer]], order: Array | None, dtype: Any = np.float32
    ) -> None:
        self.dtype = dtype
        self.shapes = {
            name: (layer.states, layer.hidden)
            for name, layer in layers
            if isinstance(layer, RecurrentLayer) and layer.stateful
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

    def initial_states(self, samples: Array) -> dict[str, Array]:
        """Return layer → initial states of the samples, (B, S, H); zeros at the start of a stream,
        and where no states are kept."""
        if not self.kept:
            return {
                name: np.zeros((len(samples), *s), self.dtype) for name, s in self.shapes.items()
            }
        there = ~self.first[samples]
        rows = self.stream[samples]
        return {name: table[rows] * there[:, None, None] for name, table in self.tables.items()}

    def store_final_states(self, samples: Array, states: Mapping[str, Array]) -> None:
        """Store the final states of these ``samples``, layer name → one row per sample, as the
        states of their streams; do nothing where states are not kept."""
        if self.kept and states:
            rows = self.stream[samples]
            self.fresh[rows] = True
            for name, state in states.items():
                self.tables[name][rows] = state

    def state(self) -> dict[str, dict[str, Array]]:
        """Return copies of the stateful layers' tables, layer → (streams, S, H), as part of a
        training's state."""
        return {SLOT: {name: table.copy() for name, table in self.tables.items()}}

    def load(self, state: Mapping[str, Mapping[str, Array]]) -> dict[str, Any]:
        """Load the hidden states from a training's state, with zeros where they are missing, and
        mark every stream as unused; return the rest of the state, which is not changed."""
        own = state.get(SLOT, {})
        self.fresh[:] = False
        for name, table in self.tables.items():
            table[...] = own.get(name, 0)
        return {slot: named for slot, named in state.items() if slot != SLOT}


def extra_inputs(
    spec: ModelSpec, seed: int, step: int, samples: Array, hidden: HiddenStates | None
) -> dict[str, Array]:
    """Return layer → its extra inputs in update ``step``, in layer order: dropout masks
    (`dualml.algorithms.model.dropout`), and initial states of stateful layers unless ``hidden`` is
    None."""
    own = dropout_masks(spec, seed, step, samples)
    if hidden is None:
        return {**own}
    every: dict[str, Array] = {**own, **hidden.initial_states(samples)}
    return {name: every[name] for name, _ in spec.layers if name in every}


def merge_hidden_states(
    own: HiddenStates, tables: Sequence[Mapping[str, Array]], fresh: Sequence[Array]
) -> None:
    """Merge the ranks' states into ``own``: each stream and layer is taken from a rank that
    processed the stream, and left as it is if none did.

    Args:
        own: states that are overwritten.
        tables: for each rank, layer → its states; ranks may lack layers.
        fresh: for each rank, its `HiddenStates.fresh`.
    """
    for name, table in own.tables.items():
        for there, came in zip(tables, fresh, strict=True):
            if name in there:
                table[came] = there[name][came]
