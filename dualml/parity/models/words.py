"""The sentences of a comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

from dualml.words import phrases

Language = Literal["en", "zh"]
#: An operation and its setting → the catalogue's entry about it.
ENTRIES = {
    ("layer_norm", "eps"): "layernorm-eps",
    ("gelu", "approximate"): "gelu",
    ("leaky_relu", "negative_slope"): "leaky-relu-slope",
    ("conv2d", "padding"): "conv-padding",
    ("max_pool2d", "stride"): "maxpool-stride",
    ("avg_pool2d", "count_include_pad"): "avgpool-same",
    ("cross_entropy", "reduction"): "softmax-cross-entropy-reduction",
    ("batch_norm", "momentum"): "batchnorm-momentum",
    ("batch_norm", "training"): "train-mode-default",
    ("softmax", "alone"): "softmax-gradient",
    ("", "form:eps_hat"): "adam-epsilon",
}


def text(lang: Language, key: str, **values: Any) -> str:
    """A sentence with its values; an unknown key is an error of ours and raises `KeyError`."""
    return phrases(lang, "models")[key].format(**values)
