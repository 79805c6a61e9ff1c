"""Recurrent language models: an embedding, recurrent layers and a decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.bert import dropout_layers
from dualml.algorithms.model.decoder import Tied
from dualml.algorithms.model.layers import Embedding, Linear
from dualml.algorithms.model.recurrent import GRU, LSTM, RNN, RecurrentLayer
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, did_you_mean

#: ``rnn_type`` → the name of its first layer, and what makes one.
TYPES: dict[str, tuple[str, Callable[..., RecurrentLayer]]] = {
    "lstm": ("lstm", LSTM),
    "gru": ("gru", GRU),
    "tanh": ("rnn", partial(RNN, nonlinearity="tanh")),
    "relu": ("rnn", partial(RNN, nonlinearity="relu")),
}


@dataclass(frozen=True)
class RNNSettings:
    """Settings of a recurrent language model.

    Attributes:
        rnn_type: ``lstm``, ``gru``, or ``tanh`` or ``relu`` of Elman's network.
        layers: number of recurrent layers.
        width: entries of a word's embedding.
        hidden: entries of a state.
        dropout: dropout rate after the embedding and after every recurrent layer; 0: no such layer.
        tied: whether the decoder's weight is the embedding table.
        init_range: above 0: both tables start uniform in ± ``init_range``, and the decoder's bias
            at zero; 0: the initialisation of `dualml.algorithms.model.init`.
        stateful: whether a batch starts from the final state of the previous batch
            (`dualml.algorithms.model.streams`).
    """

    rnn_type: str = "lstm"
    layers: int = 1
    width: int = 64
    hidden: int = 128
    dropout: float = 0.0
    tied: bool = False
    init_range: float = 0.0
    stateful: bool = False


LM = RNNSettings()
LM_DROPOUT = RNNSettings(dropout=0.2)
#: Models that take `RNNSettings`, with their default settings.
RECURRENT = {"rnn_lm": LM, "rnn_lm_dropout": LM_DROPOUT}


def rnn_lm(
    words: int = 2000, length: int = 32, settings: RNNSettings = LM, name: str = "rnn_lm"
) -> ModelSpec:
    """Return a language model: ``length`` tokens of ``words`` → logits of the token after each.

    Source: Mikolov et al. 2010, "Recurrent neural network based language model", with an LSTM by
    default; it has the settings of PyTorch's example ``word_language_model``, with other defaults,
    and drops in the same places.

    Raises:
        UserError: an unknown ``rnn_type``; tied tables of different widths.
    """
    s = settings
    if s.rnn_type not in TYPES:
        raise UserError(
            f"recurrent.rnn_type must be one of {', '.join(TYPES)}; received "
            f"{s.rnn_type!r}{did_you_mean(s.rnn_type, TYPES, fallback='')}"
        )
    if s.tied and s.width != s.hidden:
        raise UserError(
            f"recurrent.tied makes the embedding's table the decoder's weight: width = {s.width} "
            f"and hidden = {s.hidden} must be equal; set width = {s.hidden} or hidden = {s.width}"
        )
    first, make = TYPES[s.rnn_type]
    layers: list[tuple[str, Layer]] = [
        ("embedding", Embedding(words, s.width, init_range=s.init_range)),
        *dropout_layers("dropout1", s.dropout),
    ]
    for number in range(1, s.layers + 1):
        inputs = s.width if number == 1 else s.hidden
        layer = make(inputs, s.hidden, stateful=s.stateful)
        layers.append((first if number == 1 else f"{first}{number}", layer))
        layers += dropout_layers(f"dropout{number + 1}", s.dropout)
    head = partial(Tied, bias=True) if s.tied else Linear
    layers.append(("decoder", head(s.hidden, words, init_range=s.init_range)))
    return ModelSpec(name, (length,), tuple(layers))


def rnn_lm_dropout(words: int = 2000, length: int = 32) -> ModelSpec:
    """Return the language model with dropout on its non-recurrent connections.

    Source: Zaremba, Sutskever and Vinyals 2014, "Recurrent Neural Network Regularization".
    """
    return rnn_lm(words, length, LM_DROPOUT, "rnn_lm_dropout")
