"""Recurrent layers: LSTM, gated recurrent unit, and Elman's network with tanh or ReLU.

Parameters, their shapes and the order of the gates are those that PyTorch and MindSpore share:
``weight_ih_l0`` (gates·hidden, inputs), ``weight_hh_l0`` (gates·hidden, hidden), ``bias_ih_l0`` and
``bias_hh_l0`` (gates·hidden,). A stack of layers consists of several of these, so that a model can
be split and have Dropout between any two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.model.base import DtypePolicy, Layer, Shape, check_input_shape
from dualml.common.errors import UserError

NONLINEARITIES = ("tanh", "relu")


@dataclass(frozen=True)
class RecurrentLayer(Layer):
    """Base class of recurrent layers over a sequence: (T, inputs) → (T, hidden), the h of every
    step.

    It starts from a zero state; with ``stateful`` a batch starts from the final state of the
    previous batch (`dualml.algorithms.model.streams`), which is passed along with the parameters.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT
    #: Blocks of ``hidden`` rows that each parameter is made of.
    gates: ClassVar[int] = 1
    #: Vectors of ``hidden`` entries that a step passes to the next one.
    states: ClassVar[int] = 1

    inputs: int
    hidden: int
    stateful: bool = False

    def parameters(self) -> dict[str, Shape]:
        """Return the shapes of the input and recurrent weights and of both biases, each with
        gates·hidden rows."""
        rows = self.gates * self.hidden
        weights = {"weight_ih_l0": (rows, self.inputs), "weight_hh_l0": (rows, self.hidden)}
        return {**weights, "bias_ih_l0": (rows,), "bias_hh_l0": (rows,)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return (T, hidden) for a sequence (T, inputs); raise `UserError` for another shape."""
        fits = len(shape) == 2 and shape[1] == self.inputs
        check_input_shape(fits, f"{type(self).__name__} takes (T, {self.inputs})", shape)
        return (shape[0], self.hidden)


@dataclass(frozen=True)
class LSTM(RecurrentLayer):
    """Long short-term memory: (T, inputs) → (T, hidden), the h of every step.

    i, f, g, o = the quarters of W_ih·x + b_ih + W_hh·h + b_hh; c ← σ(f)·c + σ(i)·tanh(g);
    h ← σ(o)·tanh(c). The state is h and c.

    Source: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", Neural Computation 9(8), with
    the forget gate of Gers, Schmidhuber and Cummins 2000, "Learning to Forget".
    """

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2


@dataclass(frozen=True)
class GRU(RecurrentLayer):
    """Gated recurrent unit: (T, inputs) → (T, hidden), the h of every step.

    r, z, n = the thirds of W·x + b: r ← σ(W_ir·x + b_ir + W_hr·h + b_hr), z alike;
    n ← tanh(W_in·x + b_in + r·(W_hn·h + b_hn)); h ← (1 − z)·n + z·h. The reset gate multiplies
    after the product with h, as in both frameworks.

    Source: Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation", eq. 5-8, whose r multiplies before that product.
    """

    gates: ClassVar[int] = 3


@dataclass(frozen=True)
class RNN(RecurrentLayer):
    """Elman's network: (T, inputs) → (T, hidden), h ← f(W_ih·x + b_ih + W_hh·h + b_hh) of every
    step, with f = ``nonlinearity``, tanh or ReLU.

    Source: Elman 1990, "Finding Structure in Time", Cognitive Science 14(2); with ReLU: Le, Jaitly
    and Hinton 2015, "A Simple Way to Initialize Recurrent Networks of Rectified Linear Units".
    """

    nonlinearity: str = "tanh"

    def output_shape(self, shape: Shape) -> Shape:
        """Return (T, hidden) for a sequence (T, inputs); raise `UserError` for another shape or an
        unknown ``nonlinearity``."""
        if self.nonlinearity not in NONLINEARITIES:
            raise UserError(
                f"RNN: nonlinearity must be {' or '.join(NONLINEARITIES)}; "
                f"received {self.nonlinearity!r}"
            )
        return super().output_shape(shape)
