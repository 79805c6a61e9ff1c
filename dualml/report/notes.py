"""The sentences of a topic as they are made from its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dualml.report.blocks import Item
from dualml.words import Words


class Notes(list[Item]):
    """Sentences from the texts ``say.TOPIC.*``.

    Example:
        >>> notes = Notes(Words("en"), "speed")
        >>> notes.about("table-trials")
        >>> notes.say("outside", backend="torch", seconds="2 s")
        >>> notes[0].key, notes[0].target
        ('speed.outside', 'table-trials')
    """

    def __init__(self, words: Words, topic: str, target: str = "") -> None:
        super().__init__()
        self.words, self.topic, self.target = words, topic, target

    def about(self, target: str) -> None:
        """The anchor of the evidence of the sentences that follow."""
        self.target = target

    def say(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Add a sentence; with a number in its form for one or for several."""
        self._add(key, n, values, warning=False)

    def warn(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Add a sentence that limits what can be said."""
        self._add(key, n, values, warning=True)

    def part(self, key: str, /, **values: Any) -> str:
        """Of a sentence."""
        return self.words(f"say.{self.topic}.{key}", **values)

    def say_all(self, key: str, parts: Iterable[str], /, **values: Any) -> bool:
        """Add a sentence with the parts that are not empty as its ``values``; none without any."""
        if text := self.words.semicolons([part for part in parts if part]):
            self.say(key, values=text, **values)
        return bool(text)

    def _add(self, key: str, n: float | None, values: dict[str, Any], warning: bool) -> None:
        full = f"say.{self.topic}.{key}"
        text = self.words(full, **values) if n is None else self.words.plural(full, n, **values)
        self.append(Item(text, warning, self.target, f"{self.topic}.{key}"))
