"""The input of an export target: the run, and where to write."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dualml.common.errors import UserError
from dualml.common.registry import Registry

if TYPE_CHECKING:
    from dualml.common.words import Messages
    from dualml.experiment.store.run import RunData, Trial

#: Folder for exported files in a run folder.
EXPORT = "export"


@dataclass(frozen=True)
class ExportJob:
    """The request that an export target receives.

    Attributes:
        run: one run, or several of one plan taken together.
        to: name of the target.
        words: messages in the language of texts.
        out: the requested folder, None for the default.
        online: whether a service may be contacted.
    """

    run: RunData
    to: str
    words: Messages
    out: Path | None = None
    online: bool = False

    @property
    def trials(self) -> list[Trial]:
        """The trials whose records can be read."""
        return [trial for trial in self.run.trials if trial.status != "unreadable"]

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield an empty folder, absolute; it is removed again if writing fails. The default folder
        is emptied first, a requested one never.

        Raises:
            UserError: the requested folder exists and is not empty.
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


#: A function that writes the run and returns where: a folder, or the address of a store.
Target = Callable[[ExportJob], str]
TARGETS: Registry[Target] = Registry("export target", "dualml.report.export")


def require_library(library: str, what: str) -> None:
    """Raise `UserError` with the remedy if ``library`` is not installed.

    Args:
        library: name of the import package.
        what: the target; the extra of this name installs the library.
    """
    if find_spec(library) is None:
        raise UserError(f"{what} needs {library}: pip install 'dualml[{what}]'")
