"""The sentences of a comparison in two languages."""

from __future__ import annotations

from typing import Any, Literal

from dualml.words import phrases

Language = Literal["en", "zh"]
#: Key of a hint (``models.hint``) → the catalogue's entry about it.
ENTRIES = {
    "layernorm": "layernorm-eps",
    "batchnorm": "train-mode-default",
    "gelu": "gelu",
    "leakyrelu": "leaky-relu-slope",
    "conv": "conv-padding",
    "maxpool": "maxpool-stride",
    "avgpool": "avgpool-same",
    "loss": "softmax-cross-entropy-reduction",
    "update": "adam-epsilon",
    "state:buffer": "batchnorm-momentum",
}


def text(lang: Language, key: str, **values: Any) -> str:
    """A sentence with its values; an unknown key is an error of ours and raises `KeyError`."""
    return phrases(lang, "models")[key].format(**values)


def hints() -> set[str]:
    """What there is a hint for: types of layers in small letters, phases, slots of the state."""
    return set(phrases("en", "models.hint"))
