"""The form of a computed sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.report.model import Run
from dualml.report.ranks import frameworks as frameworks
from dualml.report.words import Words


@dataclass(frozen=True)
class Finding:
    """A sentence; ``key`` names its template, ``warning`` says it limits what can be said."""

    key: str
    text: str
    warning: bool = False


@dataclass(frozen=True)
class Topic:
    """Findings under one heading."""

    name: str
    findings: list[Finding]


class Notes(list[Finding]):
    """Findings of one topic as they are made."""

    def __init__(self, words: Words, topic: str) -> None:
        super().__init__()
        self.words, self.topic = words, topic

    def say(self, key: str, n: float | None = None, /, **values: Any) -> None:
        self._add(key, n, values, warning=False)

    def warn(self, key: str, n: float | None = None, /, **values: Any) -> None:
        self._add(key, n, values, warning=True)

    def _add(self, key: str, n: float | None, values: dict[str, Any], warning: bool) -> None:
        full = f"say.{self.topic}.{key}"
        make = self.words
        text = make(full, **values) if n is None else make.plural(full, n, **values)
        self.append(Finding(full, text, warning))


def ran(run: Run, arms: list[str]) -> list[str]:
    """Those of ``arms`` with at least one successful trial."""
    return [arm for arm in arms if run.select(arm)]


def named(first: Mapping[str, Any]) -> str:
    """The tensor of a divergence after its phase; the loss is called by its phase already."""
    tensor = first.get("tensor")
    return f" {tensor}" if tensor and tensor != first.get("phase") else ""
