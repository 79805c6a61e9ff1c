"""Rows for `dualml data`: every dataset with its location, and the check of one dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualml.common.arrays import fingerprint
from dualml.common.errors import UserError
from dualml.experiment.data import corpora, digits
from dualml.experiment.data.locations import locate, verify_files
from dualml.experiment.data.registry import DATASETS, TEXTS, DatasetInfo, TextInfo

Row = dict[str, Any]


def list_image_datasets() -> list[Row]:
    """Return one row per image dataset, see `dataset_row`; ``found`` is embedded, env, cache,
    incomplete or absent."""
    return [
        dataset_row(info, info.train, len(info.classes), sum(file.size for file in info.files))
        for info in DATASETS.values()
    ]


def list_texts() -> list[Row]:
    """Return one row per text, see `dataset_row`, sized in lines; ``found`` is generated, env,
    incomplete or absent."""
    return [dataset_row(info, info.lines - info.test, None, info.size) for info in TEXTS.values()]


def dataset_row(info: DatasetInfo | TextInfo, train: int, classes: int | None, size: int) -> Row:
    """Return the row of one dataset: ``name``, ``what``, ``train`` and ``test`` (samples or lines),
    ``classes``, ``bytes``, ``licence``, ``provenance``, ``found``, ``folder`` and, if it is
    incomplete, why (``problem``)."""
    folder, problem = None, None
    try:
        place, folder = find_dataset_source(info)
    except UserError as error:
        place, problem = "incomplete", str(error)
    return {
        "name": info.name,
        "what": info.what,
        "train": train,
        "test": info.test,
        "classes": classes,
        "bytes": size,
        "licence": info.licence,
        "provenance": info.provenance,
        "found": place,
        "folder": None if folder is None else str(folder),
        "problem": problem,
    }


def find_dataset_source(info: DatasetInfo | TextInfo) -> tuple[str, Path | None]:
    """Return how a dataset is found (generated, embedded, env, cache or absent) and the folder of
    its files, which is None except for env and cache; raise `UserError` if ``DUALML_DATA`` is no
    folder or has only part of it."""
    if isinstance(info, TextInfo):
        path = corpora.find_text_file(info)
        if info.generated:
            return "generated", None
        return ("absent", None) if path is None else ("env", path.parent)
    if info.embedded:
        return "embedded", None
    there = locate(info)
    return ("absent", None) if there is None else (there.kind, there.folder)


def check_text(info: TextInfo, folder: Path | None) -> list[Row]:
    """Check a text and return one row with ``file``, ``path`` and ``problem`` (None: fine): of the
    file in ``folder`` (None: in ``DUALML_DATA``), or of the generated lines, for which ``folder``
    must only exist. Raise `UserError` if the folder does not exist, or ``DUALML_DATA`` has no such
    text."""
    if folder is not None and not folder.is_dir():
        raise UserError(f"{folder} is not a folder; remedy: name the one with {info.file}")
    if info.generated:
        return [
            {
                "file": "the lines made here",
                "path": None,
                "problem": corpora.check_text_file(info, None),
            }
        ]
    path = corpora.find_text_file(info) if folder is None else folder / info.file
    if path is None:
        raise UserError(f"{info.name} is not in DUALML_DATA; remedy: {info.remedy}")
    return [{"file": info.file, "path": str(path), "problem": corpora.check_text_file(info, path)}]


def check_dataset(info: DatasetInfo, folder: Path | None) -> list[Row]:
    """Check every file of a dataset and return ``file, path, problem`` rows; ``problem`` None:
    fine.

    Args:
        folder: the folder to check; None: the first location that has the dataset. An embedded
            dataset is checked wherever it is.

    Raises:
        UserError: ``folder`` does not exist, the dataset is nowhere, or ``DUALML_DATA`` is no
            folder or has only some of its files.
    """
    if info.embedded:
        have = fingerprint(*digits.load_arrays())
        same = have == digits.SHA256
        problem = None if same else f"{info.name}: expected {digits.SHA256}, found {have}"
        return [{"file": "the embedded arrays", "path": None, "problem": problem}]
    remedy = info.remedy
    if folder is None:
        place = locate(info)
        if place is None:
            raise UserError(
                f"{info.name} is neither in DUALML_DATA nor in the cache; remedy: {info.remedy}"
            )
        folder, remedy = place.folder, info.env_remedy if place.kind == "env" else info.remedy
    elif not folder.is_dir():
        raise UserError(f"{folder} is not a folder; remedy: name the one with its files")
    return [
        {"file": file.name, "path": str(path), "problem": problem}
        for file, path, problem in verify_files(info, folder, remedy)
    ]
