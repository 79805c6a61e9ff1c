"""Conversion of labelled sentences to samples of a classifier: tokens, padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import fingerprint
from dualml.common.errors import UserError
from dualml.experiment.data.dataset import Dataset, Source
from dualml.experiment.data.text import TEST_DIVISOR, UNKNOWN, Line, build_vocabulary
from dualml.experiment.data.wordpiece import WordPiece

#: Tokens 0 and 1; the first is `dualml.algorithms.model.layers.PADDING`.
SPECIAL = ("<pad>", UNKNOWN)
Entry = tuple[Line, int]


def encode_lines(lines: Sequence[Line], known: Sequence[str], length: int) -> NDArray[np.int32]:
    """Encode lines as int32 tokens, shape (lines, length): the first ``length`` words as their
    index in ``known``, unknown ones as token 1 (`UNKNOWN`), then padding with token 0."""
    number = {word: token for token, word in enumerate(known)}
    rows = np.zeros((len(lines), length), np.int32)
    for row, line in zip(rows, lines, strict=True):
        cut = line[:length]
        row[: len(cut)] = [number.get(word, SPECIAL.index(UNKNOWN)) for word in cut]
    return rows


def split_slices(name: str, total: int) -> tuple[slice, slice, slice]:
    """Return the slices of the training, validation and test part of ``total`` sentences in their
    order, 8 : 1 : 1, at least one sentence each.

    Raises:
        UserError: there are fewer than three sentences.
    """
    tenth = max(1, total // TEST_DIVISOR)
    if total < 3:
        raise UserError(
            f"{name} has {total} sentences; training, validation and test need one each"
        )
    ends = total - 2 * tenth, total - tenth
    return slice(0, ends[0]), slice(*ends), slice(ends[1], total)


@dataclass(frozen=True)
class SentenceEncoding:
    """Settings by which sentences become samples.

    Args:
        words: largest size of the vocabulary, including `SPECIAL`.
        length: tokens of a sample; longer sentences are truncated.
        pieces: tokenizer to use instead of a vocabulary of the training part's words.
    """

    words: int
    length: int
    pieces: WordPiece | None = None


def make_labelled_dataset(
    name: str,
    source: Source,
    entries: Sequence[Entry],
    classes: Sequence[str],
    encoding: SentenceEncoding,
    notice: dict[str, str] | None = None,
) -> Dataset:
    """Make a dataset of labelled sentences: the last tenth is for testing, the tenth before for
    validation.

    Args:
        entries: (words of the sentence, label) of each.
        classes: name of label 0, 1, …
        encoding: how sentences become tokens.
        notice: language → why these sentences stand in for others; None if they do not.

    Raises:
        UserError: a label that is no class, with the number of the sentence; fewer than three
            sentences.
    """
    for at, (line, label) in enumerate(entries, start=1):
        if not 0 <= label < len(classes):
            raise UserError(
                f"{name}, sentence {at:,} ({' '.join(line)[:30]}…): label {label} is none of "
                f"{len(classes)} classes, which go from 0 to {len(classes) - 1}"
            )
    lines = [line for line, _ in entries]
    labels = np.array([label for _, label in entries], np.int64)
    train, validation, test = split_slices(name, len(lines))
    length, pieces = encoding.length, encoding.pieces
    if pieces is None:
        known = build_vocabulary(lines[train], encoding.words, SPECIAL)
        cut = sum(len(x) > length for x in lines)
        rows = encode_lines(lines, known, length)
    else:
        known, (rows, cut) = pieces.words, pieces.encode_sentences(name, lines, length)
    every = (train, validation, test)
    sha256 = fingerprint(*(array[part] for part in every for array in (rows, labels)))
    return Dataset(
        name,
        source,
        notice,
        rows[train],
        labels[train],
        rows[test],
        labels[test],
        sha256=sha256,
        mean=0.0,
        std=1.0,
        classes=tuple(classes),
        kind="labelled",
        vocabulary=known,
        pieces=pieces,
        cut=cut,
        validation_x=rows[validation],
        validation_y=labels[validation],
    )
