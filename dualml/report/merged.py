"""Sentences that several backends share."""

from __future__ import annotations

from typing import Any

from dualml.report.notes import Notes
from dualml.words import Words


class Merged:
    """Collects sentences by backend; what is the same for several is said once, of all of them."""

    def __init__(self, notes: Notes, words: Words) -> None:
        self.notes, self.words = notes, words
        self.backends: dict[tuple[Any, ...], list[str]] = {}

    def say(
        self, backend: str, key: str, n: float | None = None, /, *, warning: bool = False,
        **values: Any,
    ) -> None:  # fmt: skip
        self.backends.setdefault((key, n, warning, *values.items()), []).append(backend)

    def close(self) -> None:
        """Say everything, in the order of its first backend."""
        for (key, n, warning, *values), backends in self.backends.items():
            say = self.notes.warn if warning else self.notes.say
            say(key, n, backend=self.words.join(backends), **dict(values))
        self.backends.clear()
