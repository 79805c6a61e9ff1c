"""The datasets dualml knows: their files, checksums, mirrors, provenance and fixed constants."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError, nearest

FILE_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class IdxFile:
    """One IDX file of a dataset.

    Args:
        name: file name without ``.gz``.
        shape: of the array inside.
        checksum: ``"sha256:…"`` or ``"md5:…"`` of the *uncompressed* bytes, so that a plain file,
            the original gzip and a recompressed gzip are all judged alike.
    """

    name: str
    shape: tuple[int, ...]
    checksum: str

    @property
    def size(self) -> int:
        """Length of the uncompressed file in bytes; elements are one byte each."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Info:
    """What is known about a dataset before any of it is read: see ``datasets.toml``.

    Args:
        name: the word on the command line, and the folder's name in `DUALML_DATA` and the cache.
        what: one line for people.
    """

    name: str
    what: str
    licence: str
    provenance: str


@dataclass(frozen=True, kw_only=True)
class DatasetInfo(Info):
    """Of images: every sample is 28×28, grey."""

    train: int
    test: int
    classes: Sequence[str]
    mean: float
    std: float
    checksums: Sequence[str] = ()
    mirrors: Sequence[str] = ()

    @property
    def files(self) -> tuple[IdxFile, ...]:
        """Train images, train labels, test images, test labels; none if embedded."""
        train, test = self.train, self.test
        shapes = ((train, 28, 28), (train,), (test, 28, 28), (test,))
        named = zip(FILE_NAMES, shapes, self.checksums, strict=False)
        return tuple(IdxFile(*file) for file in named)

    @property
    def embedded(self) -> bool:
        return not self.checksums

    @property
    def remedy(self) -> str:
        """The command that brings good files."""
        return f"dualml data get {self.name}"

    @property
    def env_remedy(self) -> str:
        """The same where ``DUALML_DATA`` holds bad files, since it comes before the cache."""
        return f"repair the folder, or unset DUALML_DATA and run {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class TextInfo(Info):
    """Of a text for language models; the last tenth of its lines is for testing.

    Args:
        classes: where each line has a label, for classifiers: name of label 0, 1, …
        file: its name in the folder ``name`` of ``DUALML_DATA``; empty for a text made here.
        size: of the file in bytes.
    """

    lines: int
    sha256: str
    file: str = ""
    size: int = 0
    classes: Sequence[str] = ()

    @property
    def test(self) -> int:
        """Lines for testing."""
        return self.lines // 10

    @property
    def generated(self) -> bool:
        return not self.file

    @property
    def remedy(self) -> str:
        """How to bring the file: nothing can be downloaded."""
        return (
            f"put {self.file} ({self.size:,} bytes, sha256 {self.sha256[:12]}…) into a folder "
            f"{self.name}/ and set DUALML_DATA to the folder that holds {self.name}/"
        )


_KNOWN = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text("utf-8"))
DATASETS = {name: DatasetInfo(name=name, **facts) for name, facts in _KNOWN["images"].items()}
TEXTS = {name: TextInfo(name=name, **facts) for name, facts in _KNOWN["texts"].items()}
#: What stands in for images, for a text, and for labelled sentences, that cannot be had.
EMBEDDED, GENERATED, LABELLED = "digits", "sentences", "feelings"


def find(name: str) -> DatasetInfo:
    """A dataset of images by name.

    Raises:
        UserError: unknown name.
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}{nearest(name, [*DATASETS, *TEXTS])}")
    return DATASETS[name]
