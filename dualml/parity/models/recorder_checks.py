"""Refuse what would spoil a recording: a second recorder of a folder, a model that changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from dualml.common.errors import UserError
from dualml.parity.models.partners import Tensor

#: Folder → number of the recorder that was made for it last, in this process.
CLAIMS: dict[Path, int] = {}
NUMBERS = count(1)


def claim_folder(folder: Path | None) -> int:
    """Return the number of a new recorder, and let only this one write to the folder from now on;
    None claims no folder."""
    number = next(NUMBERS)
    if folder is not None:
        CLAIMS[folder.resolve()] = number
    return number


def check_claim(folder: Path | None, number: int) -> None:
    """Raise `UserError` if a later recorder was made for the folder of recorder ``number``."""
    if folder is not None and CLAIMS.get(folder.resolve()) != number:
        raise UserError(
            f"{folder}: a later Recorder writes its trace to the same folder; give each Recorder a "
            "folder of its own, or use one for the whole script"
        )


def check_unchanged(before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    """Raise `UserError` if a model's trained parameters have other names or shapes than before the
    first step: such steps have no common arrays. Buffers may come and go, such as tables of
    positions."""
    old, new = ({one.name: one.shape for one in side} for side in (before, after))
    for name in dict.fromkeys(one.name for side in (before, after) for one in side if one.trained):
        if old.get(name) != new.get(name):
            was, now = (f"{s[name]}" if name in s else "not there" for s in (old, new))
            raise UserError(
                f"the model changed while it was recorded: {name} was {was} when the Recorder was "
                f"made and is {now} now; make the Recorder after the last change of the model"
            )
