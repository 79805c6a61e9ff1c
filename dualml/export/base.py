"""What every target is given: the run, and where to write."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dualml.errors import UserError
from dualml.registry import Registry

if TYPE_CHECKING:
    from dualml.store.run import Run, Trial
    from dualml.words import Words

#: In a run folder: what was written for other tools.
EXPORT = "export"


@dataclass(frozen=True)
class Job:
    """What is asked of a target.

    Attributes:
        run: one run, or several of one plan taken together.
        to: the target's name.
        words: the language of texts.
        out: the folder that was asked for, if any was.
        online: whether a service may be talked to.
    """

    run: Run
    to: str
    words: Words
    out: Path | None = None
    online: bool = False

    @property
    def trials(self) -> list[Trial]:
        """Those whose records can be read."""
        return [trial for trial in self.run.trials if trial.status != "unreadable"]

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder, absolute; it is gone again where writing fails.

        Raises:
            UserError: the one that was asked for is there, and not empty.
        """
        if self.out is None:
            place = self.run.folders[0] / EXPORT / self.to
            if place.exists():
                shutil.rmtree(place)
        else:
            place = self.out.resolve()
            if place.exists() and (not place.is_dir() or any(place.iterdir())):
                raise UserError(f"{self.out} is there and not empty; choose another --out")
        place.mkdir(parents=True, exist_ok=True)
        try:
            yield place
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


#: Writes the run, and says where: a folder, or the address of a store.
Target = Callable[[Job], str]
TARGETS: Registry[Target] = Registry("export target", "dualml.export")


def needs(library: str, what: str) -> None:
    """Raises `UserError` with the remedy where ``library`` is not installed.

    Args:
        what: the target, whose extra has the library.
    """
    if find_spec(library) is None:
        raise UserError(f"{what} needs {library}: pip install 'dualml[{what}]'")
