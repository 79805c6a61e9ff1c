"""The update rules as the arms used them: formulas in LaTeX, from the rules themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.errors import UserError
from dualml.optim import rule_from


@dataclass(frozen=True)
class Principle:
    """Formulas of one rule with the options it ran with, and where they come from."""

    name: str
    formulas: tuple[str, ...]
    source: str


def principle(optimizer: Mapping[str, Any]) -> Principle | None:
    """The formulas of ``{"name": "adam", "lr": …}``; None for a rule that is not known here."""
    try:
        rule = rule_from({"lr": 1.0, **optimizer})
    except UserError:
        return None
    return Principle(rule.name, tuple(rule.formulas()), rule.source())
