"""The sentences of a topic, built from its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dualml.common.words import Messages
from dualml.report.blocks import Item

#: Placeholder for the names of the backends in a sentence that is collected for several of them.
BACKENDS_PLACEHOLDER = "\0"


class Notes(list[Item]):
    """A list of sentences made from the messages ``say.TOPIC.*``, where TOPIC is ``topic``.

    Each sentence has the anchor ``target`` of its evidence, as last set (`set_anchor`).

    Example:
        >>> notes = Notes(Messages("en"), "speed")
        >>> notes.set_anchor("table-trials")
        >>> notes.add("outside", backend="torch", seconds="2 s")
        >>> notes[0].key, notes[0].target
        ('speed.outside', 'table-trials')
    """

    def __init__(self, words: Messages, topic: str, target: str = "") -> None:
        super().__init__()
        self.words, self.topic, self.target = words, topic, target
        self.collected: dict[Item, list[str]] = {}

    def set_anchor(self, target: str) -> None:
        """Set the anchor of the evidence for the sentences that follow."""
        self.target = target

    def add(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Append the sentence of the message ``say.TOPIC.KEY``, formatted with ``values``; with a
        number ``n`` in its singular or plural form."""
        self.append(self._item(key, n, values))

    def add_warning(self, key: str, n: float | None = None, /, **values: Any) -> None:
        """Append a sentence as `add` does, marked as a limitation of the results."""
        self.append(replace(self._item(key, n, values), warning=True))

    def format_part(self, key: str, /, **values: Any) -> str:
        """Return the message ``say.TOPIC.KEY``, formatted with ``values``, to be used in another
        sentence; empty if one of the values is None. Nothing is added."""
        known = None not in values.values()
        return self.words(f"say.{self.topic}.{key}", **values) if known else ""

    def add_joined(self, key: str, parts: Iterable[str], /, **values: Any) -> bool:
        """Append the sentence ``key`` (`add`) with the non-empty parts, joined by semicolons, as
        its value ``values``; nothing without any. Return whether a sentence was added."""
        if text := self.words.semicolons([part for part in parts if part]):
            self.add(key, values=text, **values)
        return bool(text)

    def add_per_backend(
        self,
        backend: str,
        key: str,
        n: float | None = None,
        /,
        *,
        warning: bool = False,
        **values: Any,
    ) -> None:
        """Collect the sentence ``key`` (`add`) about one backend, whose name it calls ``backend``;
        `add_collected` appends equal sentences once, with the names of all their backends."""
        item = self._item(key, n, {"backend": BACKENDS_PLACEHOLDER, **values})
        self.collected.setdefault(replace(item, warning=warning), []).append(backend)

    def add_collected(self) -> None:
        """Append the sentences of `add_per_backend`, in the order of their first calls, and forget
        them."""
        for item, backends in self.collected.items():
            self.append(
                replace(
                    item, text=item.text.replace(BACKENDS_PLACEHOLDER, self.words.join(backends))
                )
            )
        self.collected.clear()

    def _item(self, key: str, n: float | None, values: dict[str, Any]) -> Item:
        """Return the sentence of the message ``say.TOPIC.KEY`` with its anchor; with a number ``n``
        in its singular or plural form."""
        full = f"say.{self.topic}.{key}"
        text = self.words(full, **values) if n is None else self.words.plural(full, n, **values)
        return Item(text, target=self.target, key=f"{self.topic}.{key}")
