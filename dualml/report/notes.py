"""The sentences of a topic as they are made from its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dualml.report.blocks import Item
from dualml.words import Words

#: In place of the backends of a sentence until all are known.
THEM = "\0"


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
        self.shared: dict[Item, list[str]] = {}

    def about(self, target: str) -> None:
        """The anchor of the evidence of the sentences that follow."""
        self.target = target

    def say(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Add a sentence; with a number in its form for one or for several."""
        self.append(self._item(key, n, values))

    def warn(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Add a sentence that limits what can be said."""
        self.append(replace(self._item(key, n, values), warning=True))

    def part(self, key: str, /, **values: Any) -> str:
        """Of a sentence; empty where one of the values is missing."""
        known = None not in values.values()
        return self.words(f"say.{self.topic}.{key}", **values) if known else ""

    def say_all(self, key: str, parts: Iterable[str], /, **values: Any) -> bool:
        """Add a sentence with the parts that are not empty as its ``values``; none without any."""
        if text := self.words.semicolons([part for part in parts if part]):
            self.say(key, values=text, **values)
        return bool(text)

    def share(
        self, backend: str, key: str, n: float | None = None, /, *, warning: bool = False,
        **values: Any,
    ) -> None:  # fmt: skip
        """A sentence about a backend: what is the same of several is said once, of all of them, by
        `close`."""
        item = self._item(key, n, {"backend": THEM, **values})
        self.shared.setdefault(replace(item, warning=warning), []).append(backend)

    def close(self) -> None:
        """Add the sentences that backends share, in the order of the first of them."""
        for item, backends in self.shared.items():
            self.append(replace(item, text=item.text.replace(THEM, self.words.join(backends))))
        self.shared.clear()

    def _item(self, key: str, n: float | None, values: dict[str, Any]) -> Item:
        full = f"say.{self.topic}.{key}"
        text = self.words(full, **values) if n is None else self.words.plural(full, n, **values)
        return Item(text, target=self.target, key=f"{self.topic}.{key}")
