"""Tables of functions and settings that are tried in place of each other: those of
``tables.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.parity.causes.mutation import Transform


def freeze_lists(value: Any) -> Any:
    """Return a parsed value with tuples in place of its lists, at every depth."""
    if isinstance(value, dict):
        return {key: freeze_lists(item) for key, item in value.items()}
    return tuple(map(freeze_lists, value)) if isinstance(value, list) else value


_TABLES = freeze_lists(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")))
EPSILONS: tuple[float, ...] = _TABLES["epsilons"]
SLOPES: tuple[float, ...] = _TABLES["slopes"]
FRACTIONS: tuple[float, ...] = _TABLES["fractions"]
FILLS: tuple[float, ...] = _TABLES["fills"]
WORDS: Mapping[str, tuple[str, ...]] = _TABLES["words"]
UNSET: Mapping[str, tuple[Any, ...]] = _TABLES["unset"]
IDLE: frozenset[str] = frozenset(_TABLES["idle"])
#: Settings that tell a kernel how many parameters there are: it would read invalid memory.
COUNTS = dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), ("num_layers", "bidirectional"))
AXES: frozenset[str] = frozenset(_TABLES["axes"])
ACTIVATIONS: tuple[Transform, ...] = _TABLES["activations"]
EXTRAS: tuple[Transform, ...] = (*ACTIVATIONS[:-1], *_TABLES["extras"])
FAMILIES: tuple[tuple[str, ...], ...] = _TABLES["families"]
FORMS: Mapping[str, tuple[str, ...]] = _TABLES["forms"]
ALIASES: frozenset[str] = frozenset(_TABLES["aliases"])
INDEXED: frozenset[str] = frozenset(_TABLES["indexed"])
PADDED: frozenset[str] = frozenset(_TABLES["padded"])
UNARY = frozenset(one[0] for one in ACTIVATIONS) | {"leaky_relu", "prelu", "celu", "gelu"}
ELEMENTWISE: frozenset[str] = UNARY.union(_TABLES["elementwise"])
PLAIN: tuple[Transform, ...] = _TABLES["plain"]
REDUCTIONS: frozenset[str] = frozenset(_TABLES["reductions"])
MASKS: frozenset[str] = frozenset(_TABLES["masks"])
OPERATOR_FUNCTIONS: Mapping[str, str] = _TABLES["operators"]
EQUIVALENT_FUNCTIONS: Mapping[str, tuple[str, ...]] = _TABLES["equivalents"]
SETTING_NAMES: Mapping[str, str] = _TABLES["setting_names"]
FLAG_WORDS: Mapping[str, Mapping[str, str]] = _TABLES["flag_words"]
SCOPED_ACTIONS: tuple[str, ...] = _TABLES["actions"]["scoped"]
SINGLE_CALL_ACTIONS: tuple[str, ...] = _TABLES["actions"]["single_call"]
KINDS: tuple[str, ...] = _TABLES["ranking"]["kinds"]
LINE_ACTIONS: tuple[str, ...] = _TABLES["ranking"]["line_actions"]
OPTIMIZER_NUMBERS: tuple[float, ...] = _TABLES["optimizers"]["numbers"]
OPTIMIZER_SETTINGS: Mapping[str, tuple[float, ...]] = _TABLES["optimizers"]["settings"]
OPTIMIZER_FORMS: Mapping[str, tuple[str, ...]] = _TABLES["optimizers"]["forms"]
GRADIENT_LIMITS: Mapping[str, tuple[float, ...]] = _TABLES["optimizers"]["limits"]
