"""From sentences with a class each to samples of a classifier: tokens, padded to one length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.data.dataset import Dataset, Source, fingerprint
from dualml.data.text import UNKNOWN, Line, split, vocabulary
from dualml.errors import UserError

#: Tokens 0 and 1; the first is `dualml.model.layers.PADDING`.
SPECIAL = ("<pad>", UNKNOWN)
Entry = tuple[Line, int]


def tokens(lines: Sequence[Line], known: Sequence[str], length: int) -> NDArray[np.int32]:
    """(N, length): the first words of each line, then padding."""
    number = {word: token for token, word in enumerate(known)}
    rows = np.zeros((len(lines), length), np.int32)
    for row, line in zip(rows, lines, strict=True):
        cut = line[:length]
        row[: len(cut)] = [number.get(word, SPECIAL.index(UNKNOWN)) for word in cut]
    return rows


def dataset(
    name: str,
    source: Source,
    entries: Sequence[Entry],
    classes: Sequence[str],
    *,
    words: int,
    length: int,
    notice: dict[str, str] | None = None,
) -> Dataset:
    """The samples of labelled sentences; the last tenth of them is for testing.

    Args:
        words: size of the vocabulary with `SPECIAL`, at most.
        length: tokens of a sample; what is longer is cut.

    Raises:
        UserError: a label that is no class, with the line.
    """
    for at, (line, label) in enumerate(entries, start=1):
        if not 0 <= label < len(classes):
            raise UserError(
                f"{name}, sentence {at:,} ({' '.join(line)[:30]}…): label {label} is none of "
                f"{len(classes)} classes, which go from 0 to {len(classes) - 1}"
            )
    lines = [line for line, _ in entries]
    labels = np.array([label for _, label in entries], np.int64)
    train, test = split(lines)
    known = vocabulary(train, words, SPECIAL)
    arrays = (
        *(tokens(train, known, length), labels[: len(train)]),
        *(tokens(test, known, length), labels[len(train) :]),
    )
    return Dataset(
        name,
        source,
        notice,
        *arrays,
        sha256=fingerprint(*arrays),
        mean=0.0,
        std=1.0,
        classes=tuple(classes),
        kind="labelled",
        vocabulary=known,
    )
