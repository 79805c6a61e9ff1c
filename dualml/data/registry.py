"""The datasets dualml knows: their files, checksums, mirrors, provenance and fixed constants."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.errors import UserError, nearest


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
        count = 1
        for length in self.shape:
            count *= length
        return 4 + 4 * len(self.shape) + count


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a dataset before any of it is read.

    Args:
        name: the word on the command line, and the folder's name in `DUALML_DATA` and the cache.
        what: one line for people.
        licence, provenance: who made it and on which terms it may be used.
        train, test: number of samples; every sample is a 28×28 grey image.
        classes: name of label 0, 1, ….
        mean, std: of the training pixels divided by 255, as used by `normalised`.
        files: train images, train labels, test images, test labels; empty if embedded.
        mirrors: base URLs, each ending in a slash, tried in this order.
    """

    name: str
    what: str
    licence: str
    provenance: str
    train: int
    test: int
    classes: tuple[str, ...]
    mean: float
    std: float
    files: tuple[IdxFile, ...] = ()
    mirrors: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        return not self.files

    @property
    def remedy(self) -> str:
        """The command that brings good files."""
        return f"dualml data get {self.name}"

    @property
    def env_remedy(self) -> str:
        """The same where ``DUALML_DATA`` holds bad files, since it comes before the cache."""
        return f"repair the folder, or unset DUALML_DATA and run {self.remedy}"


@dataclass(frozen=True)
class TextInfo:
    """What is known about a text for language models before any of it is read.

    Args:
        name, what, licence, provenance: as of a `DatasetInfo`.
        lines: of the whole text, one for each entry that has a word; the last tenth is for testing.
        sha256: of the file; of a text made here, of its lines as a file would hold them.
        file: its name in the folder ``name`` of ``DUALML_DATA``; empty for a text made here.
        size: of the file in bytes.
    """

    name: str
    what: str
    licence: str
    provenance: str
    lines: int
    sha256: str
    file: str = ""
    size: int = 0

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


FILE_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def four_files(train: int, test: int, checksums: tuple[str, str, str, str]) -> tuple[IdxFile, ...]:
    """The four files every MNIST-like dataset has, under MNIST's names."""
    shapes: tuple[tuple[int, ...], ...] = ((train, 28, 28), (train,), (test, 28, 28), (test,))
    return tuple(IdxFile(*file) for file in zip(FILE_NAMES, shapes, checksums, strict=True))


DIGIT_NAMES = tuple("0123456789")

MNIST = DatasetInfo(
    name="mnist",
    what="handwritten digits, 28×28 grey",
    licence="CC BY-SA 3.0",
    provenance="Y. LeCun, C. Cortes, C. Burges; derived from NIST databases 1 and 3",
    train=60_000,
    test=10_000,
    classes=DIGIT_NAMES,
    mean=0.1307,
    std=0.3081,
    files=four_files(
        60_000,
        10_000,
        (
            "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://raw.githubusercontent.com/fgnt/mnist/master/",
    ),
)

FASHION_MNIST = DatasetInfo(
    name="fashion_mnist",
    what="articles of clothing, 28×28 grey",
    licence="MIT",
    provenance="Zalando Research; Xiao, Rasul & Vollgraf 2017, arXiv:1708.07747",
    train=60_000,
    test=10_000,
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mean=0.2860,
    std=0.3530,
    files=four_files(
        60_000,
        10_000,
        (
            "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "md5:9018921c3c673c538a1fc5bad174d6f9",
            "md5:8181f5470baa50b63fa0f6fddb340f0a",
            "md5:15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)

DIGITS = DatasetInfo(
    name="digits",
    what="handwritten digits, 8×8 enlarged to 28×28 grey",
    licence="BSD-3-Clause (scikit-learn's copy)",
    provenance="E. Alpaydin, C. Kaynak; UCI Optical Recognition of Handwritten Digits, test part",
    train=1_437,
    test=360,
    classes=DIGIT_NAMES,
    mean=0.3055,
    std=0.3247,
)

DATASETS = {info.name: info for info in (MNIST, FASHION_MNIST, DIGITS)}
EMBEDDED = "digits"

EMOTION = TextInfo(
    name="emotion",
    what="Chinese short texts, with spaces between the words",
    licence="not known: bring your own copy",
    provenance="a comparison of text classifiers; the labels of six emotions are not used",
    lines=40_133,
    sha256="6bf592cf7016019b28272f1fcf54bc31afe6ad15bbc60970ca521ff394524a50",
    file="train.json",
    size=2_906_260,
)

SENTENCES = TextInfo(
    name="sentences",
    what="English sentences of a small grammar",
    licence="Apache-2.0",
    provenance="made by dualml, the same on every machine",
    lines=4_000,
    sha256="7a512fffd6bec9c0147a6935413c742e5ac7e6ac6b799dbb6d4664cb9c7b3732",
)

TEXTS = {info.name: info for info in (EMOTION, SENTENCES)}
GENERATED = "sentences"


def find(name: str) -> DatasetInfo:
    """A dataset of images by name.

    Raises:
        UserError: unknown name.
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}{nearest(name, [*DATASETS, *TEXTS])}")
    return DATASETS[name]
