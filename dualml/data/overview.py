"""What `dualml data` shows: every dataset with where it is, and the check of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualml.data import corpora, digits
from dualml.data.dataset import fingerprint
from dualml.data.places import locate, verify
from dualml.data.registry import DATASETS, TEXTS, DatasetInfo, TextInfo
from dualml.errors import UserError

Row = dict[str, Any]


def overview() -> list[Row]:
    """One row per dataset of images; ``found`` is embedded, env, cache, incomplete or absent."""
    return [{**facts(info), **whereabouts(info)} for info in DATASETS.values()]


def texts() -> list[Row]:
    """One row per text; ``found`` is generated, env, incomplete or absent, sizes are of lines."""
    return [{**text_facts(info), **text_whereabouts(info)} for info in TEXTS.values()]


def facts(info: DatasetInfo) -> Row:
    return {
        "name": info.name,
        "what": info.what,
        "train": info.train,
        "test": info.test,
        "classes": len(info.classes),
        "bytes": sum(file.size for file in info.files),
        "licence": info.licence,
        "provenance": info.provenance,
    }


def text_facts(info: TextInfo) -> Row:
    return {
        "name": info.name,
        "what": info.what,
        "train": info.lines - info.test,
        "test": info.test,
        "classes": None,
        "bytes": info.size,
        "licence": info.licence,
        "provenance": info.provenance,
    }


def text_whereabouts(info: TextInfo) -> Row:
    if info.generated:
        return {"found": "generated", "folder": None, "problem": None}
    try:
        path = corpora.where(info)
    except UserError as error:
        return {"found": "incomplete", "folder": None, "problem": str(error)}
    if path is None:
        return {"found": "absent", "folder": None, "problem": None}
    return {"found": "env", "folder": str(path.parent), "problem": None}


def whereabouts(info: DatasetInfo) -> Row:
    if info.embedded:
        return {"found": "embedded", "folder": None, "problem": None}
    try:
        place = locate(info)
    except UserError as error:
        return {"found": "incomplete", "folder": None, "problem": str(error)}
    if place is None:
        return {"found": "absent", "folder": None, "problem": None}
    return {"found": place.kind, "folder": str(place.folder), "problem": None}


def check_text(info: TextInfo, folder: Path | None) -> list[Row]:
    """The same as `check` of a text."""
    if folder is not None and not folder.is_dir():
        raise UserError(f"{folder} is not a folder; remedy: name the one with {info.file}")
    if info.generated:
        return [{"file": "the lines made here", "path": None, "problem": corpora.check(info, None)}]
    path = corpora.where(info) if folder is None else folder / info.file
    if path is None:
        raise UserError(f"{info.name} is not in DUALML_DATA; remedy: {info.remedy}")
    return [{"file": info.file, "path": str(path), "problem": corpora.check(info, path)}]


def check(info: DatasetInfo, folder: Path | None) -> list[Row]:
    """``file, path, problem`` for every file of a dataset; ``problem`` is None where all is well.

    Args:
        folder: where to look; by default the first place that has the dataset.

    Raises:
        UserError: ``folder`` does not exist, or the dataset is nowhere.
    """
    if info.embedded:
        have = fingerprint(*digits.arrays())
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
        raise UserError(f"{folder} is not a folder; remedy: name the one with the IDX files")
    return [
        {"file": file.name, "path": str(path), "problem": problem}
        for file, path, problem in verify(info, folder, remedy)
    ]
