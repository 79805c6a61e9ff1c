"""The datasets dualml knows: their files, checksums, mirrors, provenance and fixed constants."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError, nearest

#: Shape of an image of CIFAR: channels (red, green, blue), rows, columns.
COLOUR = (3, 32, 32)
FILE_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


#: A number for all pixels, or one for each channel.
Constant = float | Sequence[float]


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


@dataclass(frozen=True)
class RecordFile:
    """A file of equal records: some bytes of labels, and behind them an image of 3×32×32 bytes.

    Args:
        name: of the file.
        records: how many there are.
        labels: bytes of labels in a record.
        checksum: ``"sha256:…"`` of the file; empty for a user's own.
    """

    name: str
    records: int
    labels: int
    checksum: str

    @property
    def record(self) -> int:
        """Bytes of a record."""
        return self.labels + math.prod(COLOUR)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self.records * self.record


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
    """Of images: every sample is 28×28, grey.

    ``mean`` and ``std`` are of the training pixels divided by 255, of colour images one for each
    channel.
    """

    train: int
    test: int
    classes: Sequence[str]
    mean: Constant
    std: Constant
    checksums: Sequence[str] = ()
    mirrors: Sequence[str] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample: channels, rows, columns."""
        return (1, 28, 28)

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the folder of its files in ``DUALML_DATA``; the first one in the cache, too."""
        return (self.name,)

    @property
    def needs(self) -> str:
        """What a user without a network brings."""
        return "the four files"

    @property
    def files(self) -> tuple[IdxFile | RecordFile, ...]:
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
class RecordInfo(DatasetInfo):
    """Of colour images, 32×32, in the binary files of CIFAR.

    Args:
        home: folder of the files in ``DUALML_DATA`` and the cache; datasets with other labels of
            the same images have the same one.
        archive, inside: the archive that is published, and the folder of the files in it.
        size, sha256: of the archive.
        labels, label: bytes of labels in a record, and which of them is the class.
        shards: name, records and checksum of each file; the last one is the test set.
    """

    home: str
    archive: str
    inside: str
    size: int
    sha256: str
    labels: int
    label: int
    shards: Sequence[tuple[str, int, str]]

    @property
    def shape(self) -> tuple[int, ...]:
        return COLOUR

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.home, self.inside)

    @property
    def needs(self) -> str:
        return f"{self.archive}, or the files of it,"

    @property
    def files(self) -> tuple[RecordFile, ...]:
        """The training files in order, and the test file."""
        return tuple(
            RecordFile(name, records, self.labels, checksum)
            for name, records, checksum in self.shards
        )

    @property
    def embedded(self) -> bool:
        return False


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
DATASETS: dict[str, DatasetInfo] = {
    **{name: DatasetInfo(name=name, **facts) for name, facts in _KNOWN["images"].items()},
    **{name: RecordInfo(name=name, **facts) for name, facts in _KNOWN["records"].items()},
}
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
