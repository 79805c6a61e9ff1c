"""A text by name: one in ``DUALML_DATA``, the one made here, or any file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dualml.data import labelled, text
from dualml.data.dataset import Dataset, Source
from dualml.data.feelings import feelings
from dualml.data.places import env_dir
from dualml.data.registry import DATASETS, GENERATED, LABELLED, TEXTS, TextInfo
from dualml.data.sentences import sentences
from dualml.data.wordpiece import WordPiece
from dualml.errors import UserError
from dualml.files import MOST_TEXT, read_bytes
from dualml.parse import is_unicode
from dualml.words import LANGUAGES, both, table

SUFFIXES = (".txt", ".md")


def is_text(name: str) -> bool:
    """Whether `load` takes ``name`` for a text: a known one, or what can only be a file."""
    if name in TEXTS or name in DATASETS:
        return name in TEXTS
    separated = {"/", os.sep, os.altsep or os.sep} & set(name)
    return bool(separated) or name.lower().endswith(SUFFIXES) or Path(name).is_file()


def load(
    name: str,
    *,
    explicit: bool,
    words: int,
    length: int,
    labels: bool = False,
    pretrained: str = "",
    tokens: text.Tokens = "words",
) -> Dataset:
    """The text ``name``, or the one made here in place of a known one that is not there.

    Args:
        labels: sentences with a class each, for a classifier, in place of one stream of words.
        pretrained: folder of a model whose vocabulary makes the tokens of labelled sentences.
        tokens: of a stream, what a token is.

    Raises:
        UserError: a file that is missing, damaged or too short; and, with ``explicit``, a known
            text that is not on this machine. A path never falls back.
    """
    if labels and not getattr(TEXTS.get(name), "classes", ()):
        raise UserError(
            f"{name} has no labels; data.labels = true is for "
            f"{' and '.join(n for n, info in TEXTS.items() if info.classes)}"
        )
    if name not in TEXTS:
        return of_file(Path(name).expanduser(), words, length, tokens)
    info, notice = TEXTS[name], None
    path = where(info)
    if not info.generated and path is None:
        if explicit:
            raise UserError(f"{lacking(info)['en']}; remedy: {info.remedy}")
        wanted, info = info, TEXTS[LABELLED if labels else GENERATED]
        notice = stands_in(wanted, info, "labelled" if labels else "text")
    source: Source = "generated" if path is None else "env"
    sizes: Any = {"words": words, "length": length, "notice": notice}
    if labels:
        rows = feelings() if path is None else entries(info, path)
        pieces = WordPiece.open(Path(pretrained)) if pretrained else None
        return labelled.dataset(info.name, source, rows, info.classes, pieces=pieces, **sizes)
    lines = generated(info) if path is None else [line for line, _ in entries(info, path)]
    lines = text.characters(lines) if tokens == "characters" else lines
    return text.dataset(info.name, source, lines, **sizes)


def generated(info: TextInfo) -> list[text.Line]:
    """The lines of a text that dualml makes."""
    return sentences() if info.name == GENERATED else [line for line, _ in feelings()]


def of_file(path: Path, words: int, length: int, tokens: text.Tokens = "words") -> Dataset:
    """The text of any UTF-8 file; says so where characters stand for words."""
    if not is_unicode(str(path.resolve())):  # the plan says where the text is
        raise UserError(f"{path}: its path is not Unicode text; rename what is not")
    lines, joined = text.lines_of(text.read(path), tokens)
    notice = None
    if joined:
        notice = both("notice.no_spaces", joined=joined, lines=len(lines), name=path.name)
    return text.dataset(
        path.name, "file", lines, words=words, length=length, notice=notice, path=path.resolve()
    )


def where(info: TextInfo) -> Path | None:
    """The file in ``DUALML_DATA``; None if it is not there, or none is needed.

    Raises:
        UserError: ``DUALML_DATA`` is no folder.
    """
    folder = env_dir()
    if info.generated or folder is None:
        return None
    path = folder / info.name / info.file
    return path if path.exists() else None


def entries(info: TextInfo, path: Path) -> list[tuple[text.Line, int]]:
    """The lines and labels of a JSON list of ``[words with spaces between them, label]``, checked.

    Raises:
        UserError: unreadable, or not the file that is known.
    """
    rows = ((entry[0].split(), entry[1]) for entry in json.loads(good(info, path)))
    return [(line, label) for line, label in rows if line]


def good(info: TextInfo, path: Path) -> bytes:
    """The bytes of the file if they are the right ones; else a `UserError` with both checksums."""
    try:
        data = read_bytes(path, MOST_TEXT)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    have = hashlib.sha256(data).hexdigest()
    if have != info.sha256:
        raise UserError(
            f"{path} is another file: expected {info.size:,} bytes, sha256 {info.sha256}, found "
            f"{len(data):,} bytes, sha256 {have}; remedy: {info.remedy}"
        )
    return data


def lacking(info: TextInfo) -> dict[str, str]:
    """Why a known text is not there, in both languages."""
    chosen, file = os.environ.get("DUALML_DATA"), f"{info.name}/{info.file}"
    if not chosen:
        return both("notice.not_set", name=info.name)
    return both("notice.not_there", name=info.name, folder=chosen, file=file)


def check(info: TextInfo, path: Path | None) -> str | None:
    """What is wrong with a text, or None; ``path`` is of its file, if it has one."""
    if path is not None:
        try:
            good(info, path)
        except UserError as error:
            return str(error)
        return None
    have = sha256_of(generated(info))
    return None if have == info.sha256 else f"{info.name}: expected {info.sha256}, found {have}"


def sha256_of(lines: list[text.Line]) -> str:
    """Of the lines as a file would hold them."""
    return hashlib.sha256("".join(f"{' '.join(line)}\n" for line in lines).encode()).hexdigest()


def stands_in(wanted: TextInfo, used: TextInfo, notice: str) -> dict[str, str]:
    """What console and report say when the text made here stands in, in both languages."""
    why = lacking(wanted)
    values = {
        "used": used.name, "what": used.what, "lines": used.lines, "wanted": wanted.name,
        "remedy": wanted.remedy, "file": wanted.file, "size": wanted.size,
        "sha256": wanted.sha256[:12],
    }  # fmt: skip
    return {
        lang: table(lang)[f"notice.{notice}"].format(why=why[lang], **values) for lang in LANGUAGES
    }
