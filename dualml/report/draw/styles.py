"""How each mark of a figure is shown: what its owner's keys decide."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.draw import markers
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import KINDS, NOBODY, Figure, Key, Mark, Owner


class Styles:
    """The keys of a figure, completed: what is drawn and in no key gets the next free colour."""

    def __init__(self, figure: Figure) -> None:
        self.keys = {(key.of, key.name): key for key in figure.keys}
        colors = {key.color for key in figure.keys}
        free = iter([c for c in CYCLE if c not in colors] + list(CYCLE) * 9)
        shapes = [s for s in markers.CYCLE if s not in {key.marker for key in figure.keys}]
        marked = any(key.marker and key.of == "series" for key in figure.keys)
        for owner in map(owner_of, marks(figure)):
            if any(key.color for key in self._of(owner)):
                continue
            new = [k for k in KINDS if owner.of(k) and (k, owner.of(k)) not in self.keys]
            for kind in new[:1]:
                shape = shapes.pop(0) if marked and shapes and kind == "series" else ""
                name = owner.of(kind)
                self.keys[kind, name] = Key(kind, name, color=next(free), marker=shape)

    def _of(self, owner: Owner) -> list[Key]:
        places = ((kind, owner.of(kind)) for kind in KINDS)
        return [self.keys[place] for place in places if place in self.keys]

    def style(self, owner: Owner) -> Key:
        """Of the first key that decides each."""
        keys = self._of(owner)
        color, stroke, marker = (
            next((value for key in keys if (value := getattr(key, name))), usual)
            for name, usual in (("color", "ink"), ("stroke", "solid"), ("marker", ""))
        )
        hollow, pale = any(k.hollow for k in keys), any(k.pale for k in keys)
        return Key("series", "", "", color, stroke, marker, hollow, pale)


def owner_of(mark: Mark) -> Owner:
    return getattr(mark, "owner", NOBODY)


def marks(figure: Figure) -> Iterator[Mark]:
    for panel in figure.panels:
        yield from panel.marks if panel is not None else ()
