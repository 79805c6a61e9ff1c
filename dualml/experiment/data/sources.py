"""Loading of a dataset by name from the first source that has it.

The sources are `DUALML_DATA`, the user's cache, a download, and, only if the dataset was not
requested by name, the embedded digits with a notice. For texts see
`dualml.experiment.data.corpora`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.arrays import fingerprint
from dualml.common.json_types import JsonMapping
from dualml.common.words import LANGUAGES, all_languages
from dualml.experiment.data import cifar, corpora, digits, idx, user_images
from dualml.experiment.data.dataset import Array, Dataset, Source
from dualml.experiment.data.fetch import OFFLINE, Unreachable, download
from dualml.experiment.data.locations import find_file, locate, read_verified
from dualml.experiment.data.registry import (
    EMBEDDED,
    Constant,
    DatasetInfo,
    IdxFile,
    RecordInfo,
    find_dataset,
)
from dualml.experiment.data.stats import statistics
from dualml.experiment.data.text import LENGTH, WORDS, Tokens


def load(
    name: str,
    *,
    explicit: bool,
    words: int = WORDS,
    length: int = LENGTH,
    labels: bool = False,
    pretrained: str = "",
    tokens: Tokens = "words",
) -> Dataset:
    """Load the dataset ``name``, after a download into the cache if it is not on this machine, or,
    if it is not available and not ``explicit``, the embedded images or a generated text in its
    place.

    Args:
        name: name of a known dataset, path of a folder of images
            (`dualml.experiment.data.user_images`), or path of a text file: it has a separator, ends
            in ``.txt`` or ``.md``, or exists.
        explicit: the user named the dataset, so that no other one may replace it.
        words, length: largest vocabulary size of a text, and the tokens of a window.
        labels: load a text's labelled sentences, each a sample of ``length`` tokens.
        pretrained: folder whose ``vocab.txt`` encodes labelled sentences; empty: a vocabulary of
            words.
        tokens: the kind of token of a text.

    Raises:
        UserError: unknown name; ``DUALML_DATA`` is no folder; files that are found but incomplete,
            damaged or not the published ones (these never fall back: the user should know); and,
            with ``explicit``, a dataset that cannot be downloaded.
    """
    if user_images.is_folder(name):
        return load_user_images(Path(name))
    if corpora.is_text(name):
        sizes: dict[str, Any] = {"words": words, "length": length, "tokens": tokens}
        return corpora.load_text(
            name, explicit=explicit, labels=labels, pretrained=pretrained, **sizes
        )
    info = find_dataset(name)
    if info.embedded:
        return load_embedded(info, None)
    place = locate(info)
    if place is not None:
        return load_folder(info, place.folder, place.kind)
    try:
        return load_folder(info, download(info), "download")
    except Unreachable as error:
        if explicit:
            raise
        why = dict.fromkeys(LANGUAGES, error.why)
        if error.why == OFFLINE:
            why = all_languages("notice.offline")
        used = find_dataset(EMBEDDED)
        counts = {"train": used.train, "test": used.test}
        return load_embedded(used, corpora.stand_in_notice("images", info, used, why, **counts))


def load_planned(planned: JsonMapping) -> Dataset:
    """Load the dataset that a plan's ``data`` describes, and no other.

    Raises:
        UserError: it is not available any more, or is not the one of the plan.
    """
    keys = ("words", "length", "labels", "pretrained", "tokens")
    made = {key: planned[key] for key in keys if key in planned}
    data = load(planned.get("path") or planned["name"], explicit=True, **made)
    data.check_same(planned)
    return data


def load_folder(info: DatasetInfo, folder: Path, source: Source) -> Dataset:
    """Load a dataset from its files in ``folder``, each checked against the registry.

    Raises:
        UserError: a missing or bad file, unequal numbers of images and labels, or a label that is
            no class.
    """
    remedy = info.env_remedy if source == "env" else info.remedy
    if isinstance(info, RecordInfo):
        return assemble_dataset(info, source, None, cifar.read_images(info, folder, remedy), folder)
    arrays = [
        read_idx_file(folder, file, remedy) for file in info.files if isinstance(file, IdxFile)
    ]
    return assemble_dataset(info, source, None, arrays, folder)


def load_user_images(folder: Path) -> Dataset:
    """Load the user's own images from a folder (`dualml.experiment.data.user_images`), with the
    mean and deviation of their training images as constants; without class names, there are as many
    classes as the labels need.

    Raises:
        UserError: a file is missing or truncated, or a label has no name.
    """
    folder = folder.resolve()
    info = user_images.describe_folder(folder)
    arrays = cifar.read_images(info, folder, user_images.REMEDY)
    if not info.classes:
        last = max(int(y.max(initial=0)) for y in arrays[1::2])
        info = replace(info, classes=[str(number) for number in range(last + 1)])
    measured = statistics(arrays[0])
    info = replace(info, mean=measured.mean, std=measured.std)
    return replace(assemble_dataset(info, "file", None, arrays, folder), path=str(folder))


def read_idx_file(folder: Path, file: IdxFile, remedy: str) -> Array:
    """Read one IDX file after checking it; raise `UserError` if it is missing or bad."""
    path = find_file(folder, file.name)
    if path is None:
        raise idx.file_error(folder / file.name, "is missing", remedy)
    return idx.parse(read_verified(path, file, remedy), path, remedy=remedy)


def load_embedded(info: DatasetInfo, notice: dict[str, str] | None) -> Dataset:
    """Load the digits that scikit-learn contains; ``notice`` says, by language, why they replace
    another dataset."""
    return assemble_dataset(info, "embedded", notice, digits.load_arrays(), Path("scikit-learn"))


def assemble_dataset(
    info: DatasetInfo,
    source: Source,
    notice: dict[str, str] | None,
    arrays: Sequence[Array],
    where: Path,
) -> Dataset:
    """Make the dataset from ``arrays`` (training images and labels, test images and labels), with
    its fingerprint and labels as int64; raise `UserError`, which names ``where``, if images and
    labels are not equally many or a label is no class."""
    train_x, train_y, test_x, test_y = arrays
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        what = f"({info.name}, {part}) has"
        if len(x) != len(y):
            fault = f"{what} {len(x):,} images but {len(y):,} labels"
            raise idx.file_error(where, fault, info.remedy)
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(info.classes):
            last = len(info.classes) - 1
            fault = f"{what} labels from {y.min()} to {y.max()}; expected 0 to {last}"
            raise idx.file_error(where, fault, info.remedy)
    arrays = (train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64))
    return Dataset(
        info.name,
        source,
        notice,
        *arrays,
        sha256=fingerprint(*arrays),
        mean=as_constant(info.mean),
        std=as_constant(info.std),
        classes=tuple(info.classes),
    )


def as_constant(value: Constant) -> float | tuple[float, ...]:
    """Return a normalisation constant as a float, or as one float per channel."""
    return float(value) if isinstance(value, int | float) else tuple(map(float, value))
