"""Registry of the known datasets: their files, checksums, mirrors, provenance and constants."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError, did_you_mean

#: Shape of an image of CIFAR: channels (red, green, blue), rows, columns.
COLOUR = (3, 32, 32)
FILE_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


#: A constant for all pixels, or one per channel.
Constant = float | Sequence[float]


@dataclass(frozen=True)
class IdxFile:
    """One IDX file of a dataset.

    Args:
        name: file name without ``.gz``.
        shape: shape of the array in the file.
        checksum: ``"sha256:…"`` or ``"md5:…"`` of the *uncompressed* bytes, so that a plain file,
            the original gzip and a recompressed gzip are all accepted.
    """

    name: str
    shape: tuple[int, ...]
    checksum: str

    @property
    def size(self) -> int:
        """Length of the uncompressed file in bytes, at one byte per element."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


@dataclass(frozen=True)
class RecordFile:
    """A file of equal records, each of some label bytes and an image of 3×32×32 bytes.

    Args:
        name: file name.
        records: number of records.
        labels: label bytes of a record.
        checksum: ``"sha256:…"`` of the file; empty for a user's own file.
    """

    name: str
    records: int
    labels: int
    checksum: str

    @property
    def record(self) -> int:
        """Bytes of one record."""
        return self.labels + math.prod(COLOUR)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self.records * self.record


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """Facts about a dataset that are known before it is read, see ``datasets.toml``.

    Args:
        name: the word on the command line, and the folder's name in `DUALML_DATA` and the cache.
        what: a one-line description.
    """

    name: str
    what: str
    licence: str
    provenance: str


@dataclass(frozen=True, kw_only=True)
class DatasetInfo(DatasetFacts):
    """Facts about an image dataset; its samples are 28×28 and grey.

    ``mean`` and ``std`` are those of the training pixels divided by 255, one per channel for colour
    images.
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
        """Shape of a sample: channels, rows, columns."""
        return (1, 28, 28)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folder names of its files in ``DUALML_DATA``; the first one is also used in the cache."""
        return (self.name,)

    @property
    def manual_files(self) -> str:
        """Description of the files that a user without a network must provide."""
        return "the four files"

    @property
    def files(self) -> tuple[IdxFile | RecordFile, ...]:
        """Training images, training labels, test images and test labels; none if the dataset is
        embedded."""
        train, test = self.train, self.test
        shapes = ((train, 28, 28), (train,), (test, 28, 28), (test,))
        named = zip(FILE_NAMES, shapes, self.checksums, strict=False)
        return tuple(IdxFile(*file) for file in named)

    @property
    def embedded(self) -> bool:
        """Whether dualml has the dataset without any file."""
        return not self.checksums

    @property
    def remedy(self) -> str:
        """Command that downloads good files."""
        return f"dualml data get {self.name}"

    @property
    def env_remedy(self) -> str:
        """Remedy for bad files in ``DUALML_DATA``, which comes before the cache."""
        return f"repair the folder, or unset DUALML_DATA and run {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class RecordInfo(DatasetInfo):
    """Facts about a dataset of 32×32 colour images in CIFAR's binary files.

    Args:
        home: folder of the files in ``DUALML_DATA`` and the cache; datasets that label the same
            images differently share it.
        archive, inside: name of the published archive, and the folder of the files in it.
        size, sha256: size in bytes and checksum of the archive.
        labels, label: label bytes of a record, and the index of the one that is the class.
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
        """Shape of a colour image: channels, rows, columns."""
        return COLOUR

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the folders in ``DUALML_DATA`` that may hold the files: ``home``, which is also
        used in the cache, and the archive's own folder."""
        return (self.home, self.inside)

    @property
    def manual_files(self) -> str:
        """Name of the published archive, or of the files in it, for messages."""
        return f"{self.archive}, or the files of it,"

    @property
    def files(self) -> tuple[RecordFile, ...]:
        """Training files in order, then the test file."""
        return tuple(
            RecordFile(name, records, self.labels, checksum)
            for name, records, checksum in self.shards
        )

    @property
    def embedded(self) -> bool:
        """False, because the images must be downloaded."""
        return False


@dataclass(frozen=True, kw_only=True)
class TextInfo(DatasetFacts):
    """Facts about a text for language models; the last tenth of its lines is for testing.

    Args:
        classes: names of the labels 0, 1, … of a labelled text for classifiers; else empty.
        file: file name in the folder ``name`` of ``DUALML_DATA``; empty for a generated text.
        size: size of the file in bytes.
    """

    lines: int
    sha256: str
    file: str = ""
    size: int = 0
    classes: Sequence[str] = ()

    @property
    def test(self) -> int:
        """Number of lines for testing: a tenth of all, rounded down."""
        return self.lines // 10

    @property
    def generated(self) -> bool:
        """Whether dualml generates the text."""
        return not self.file

    @property
    def remedy(self) -> str:
        """Instruction how to provide the file, which cannot be downloaded."""
        return (
            f"put {self.file} ({self.size:,} bytes, sha256 {self.sha256[:12]}…) into a folder "
            f"{self.name}/ and set DUALML_DATA to the folder that holds {self.name}/"
        )


#: Content of ``datasets.toml``.
_CATALOGUE = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text("utf-8"))
DATASETS: dict[str, DatasetInfo] = {
    **{name: DatasetInfo(name=name, **facts) for name, facts in _CATALOGUE["images"].items()},
    **{name: RecordInfo(name=name, **facts) for name, facts in _CATALOGUE["records"].items()},
}
TEXTS = {name: TextInfo(name=name, **facts) for name, facts in _CATALOGUE["texts"].items()}
#: Names of the datasets that replace images, a text, and labelled sentences that are not available.
EMBEDDED, GENERATED, LABELLED = "digits", "sentences", "feelings"


def find_dataset(name: str) -> DatasetInfo:
    """Return the facts about an image dataset by name.

    Raises:
        UserError: unknown name.
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}{did_you_mean(name, [*DATASETS, *TEXTS])}")
    return DATASETS[name]
