"""Record where the layers of a model were built, because a wrong setting stands there, not at the
call."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from dualml.parity.models.operations import SourceLocation, expression_text


@contextlib.contextmanager
def record_construction(base: Any, skip: Sequence[str]) -> Iterator[dict[int, SourceLocation]]:
    """Record, within the context, the user's source line that builds each layer of the framework's
    own classes, also indirectly; layers of the user's classes are left out.

    Yields a mapping from the ``id`` of a layer to the user's line.

    Args:
        base: the framework's base class of all layers.
        skip: folders of packages whose lines are not the user's.
    """
    original, framework = base.__init__, base.__module__.partition(".")[0]
    places: dict[int, SourceLocation] = {}

    def recording_init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if type(self).__module__.partition(".")[0] != framework:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((*skip, "<")):
            frame = frame.f_back
        if frame is not None:
            code = frame.f_code
            text = expression_text(code, frame.f_lasti)
            places[id(self)] = SourceLocation(code.co_filename, frame.f_lineno, text)

    base.__init__ = recording_init
    try:
        yield places
    finally:
        base.__init__ = original


def locations_by_name(
    places: Mapping[int, SourceLocation], modules: Mapping[int, str]
) -> dict[str, SourceLocation]:
    """Return name of a module → the line that built it; modules without a known line are left out.

    Args:
        places: ``id`` of a module → line, see `record_construction`.
        modules: ``id`` of a module → its name.
    """
    return {name: places[number] for number, name in modules.items() if number in places}
