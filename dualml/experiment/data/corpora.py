"""Texts by name: one in ``DUALML_DATA``, a generated one, or any text file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES
from dualml.common.parse import is_unicode
from dualml.common.words import LANGUAGES, all_languages, load_messages
from dualml.experiment.data import labelled, text
from dualml.experiment.data.dataset import Dataset, Source
from dualml.experiment.data.feelings import make_labelled_sentences
from dualml.experiment.data.idx import read_data
from dualml.experiment.data.locations import env_dir
from dualml.experiment.data.registry import (
    DATASETS,
    GENERATED,
    LABELLED,
    TEXTS,
    DatasetInfo,
    TextInfo,
)
from dualml.experiment.data.sentences import make_sentences
from dualml.experiment.data.wordpiece import WordPiece

SUFFIXES = (".txt", ".md")


def is_text(name: str) -> bool:
    """Return whether `load_text` handles ``name``: the name of a known text or, unless it is a
    known dataset of images, a path: it has a separator, ends in one of `SUFFIXES`, or names an
    existing file."""
    if name in TEXTS or name in DATASETS:
        return name in TEXTS
    separated = {"/", os.sep, os.altsep or os.sep} & set(name)
    return bool(separated) or name.lower().endswith(SUFFIXES) or Path(name).is_file()


def load_text(
    name: str,
    *,
    explicit: bool,
    words: int,
    length: int,
    labels: bool = False,
    pretrained: str = "",
    tokens: text.Tokens = "words",
) -> Dataset:
    """Load the text ``name``, or the generated text in place of a known one that is not available.

    Args:
        explicit: whether the user named the text, so that no other one may replace it.
        words, length: largest vocabulary size, and the tokens of a window or a labelled sentence.
        labels: load labelled sentences for a classifier instead of one stream of words.
        pretrained: folder of a model whose vocabulary makes the tokens of labelled sentences;
            empty: a vocabulary of the text's words.
        tokens: the kind of token of a stream.

    Raises:
        UserError: a file that is missing, damaged or too short; ``labels`` for a text without
            labels; and, with ``explicit``, a known text that is not on this machine. A path never
            falls back.
    """
    if labels and not getattr(TEXTS.get(name), "classes", ()):
        raise UserError(
            f"{name} has no labels; data.labels = true is for "
            f"{' and '.join(n for n, info in TEXTS.items() if info.classes)}"
        )
    if name not in TEXTS:
        return load_text_file(Path(name).expanduser(), words, length, tokens)
    info, notice = TEXTS[name], None
    path = find_text_file(info)
    if not info.generated and path is None:
        if explicit:
            raise UserError(f"{missing_notice(info)['en']}; remedy: {info.remedy}")
        wanted, info = info, TEXTS[LABELLED if labels else GENERATED]
        notice = stand_in_notice(
            "labelled" if labels else "text",
            wanted,
            info,
            missing_notice(wanted),
            lines=info.lines,
            file=wanted.file,
            size=wanted.size,
            sha256=wanted.sha256[:12],
        )
    source: Source = "generated" if path is None else "env"
    if labels:
        rows = make_labelled_sentences() if path is None else read_entries(info, path)
        pieces = WordPiece.open(Path(pretrained)) if pretrained else None
        encoding = labelled.SentenceEncoding(words, length, pieces)
        return labelled.make_labelled_dataset(
            info.name, source, rows, info.classes, encoding, notice
        )
    lines = generate_lines(info) if path is None else [line for line, _ in read_entries(info, path)]
    lines = text.to_characters(lines) if tokens == "characters" else lines
    return text.make_text_dataset(
        info.name, source, lines, words=words, length=length, notice=notice
    )


def generate_lines(info: TextInfo) -> list[text.Line]:
    """Return the lines of a text that dualml generates itself, without the labels if it has any."""
    if info.name == GENERATED:
        return make_sentences()
    return [line for line, _ in make_labelled_sentences()]


def load_text_file(path: Path, words: int, length: int, tokens: text.Tokens = "words") -> Dataset:
    """Load any UTF-8 file as a text; add a notice if lines without spaces were split into
    characters. Raise `UserError` for a file that is unreadable, has a path that is not Unicode, or
    is too short. ``words`` is the largest vocabulary size, ``length`` the tokens of a window."""
    if not is_unicode(str(path.resolve())):  # the plan says where the text is
        raise UserError(f"{path}: its path is not Unicode text; rename what is not")
    lines, joined = text.split_lines(text.read_text_file(path), tokens)
    notice = None
    if joined:
        notice = all_languages("notice.no_spaces", joined=joined, lines=len(lines), name=path.name)
    return text.make_text_dataset(
        path.name, "file", lines, words=words, length=length, notice=notice, path=path.resolve()
    )


def find_text_file(info: TextInfo) -> Path | None:
    """Return the text's file in ``DUALML_DATA``; None if it is missing or the text is generated.

    Raises:
        UserError: ``DUALML_DATA`` names no folder.
    """
    folder = env_dir()
    if info.generated or folder is None:
        return None
    path = folder / info.name / info.file
    return path if path.exists() else None


def read_entries(info: TextInfo, path: Path) -> list[tuple[text.Line, int]]:
    """Read and check a JSON list of ``[words separated by spaces, label]``; return its lines and
    labels, without entries that have no word.

    Raises:
        UserError: unreadable, or not the file that is known.
    """
    rows = ((entry[0].split(), entry[1]) for entry in json.loads(read_verified_text(info, path)))
    return [(line, label) for line, label in rows if line]


def read_verified_text(info: TextInfo, path: Path) -> bytes:
    """Return the bytes of a text's file; raise `UserError` if it cannot be read, or with both
    checksums if they differ."""
    data = read_data(path, MAX_TEXT_BYTES, info.remedy)
    have = hashlib.sha256(data).hexdigest()
    if have != info.sha256:
        raise UserError(
            f"{path} is another file: expected {info.size:,} bytes, sha256 {info.sha256}, found "
            f"{len(data):,} bytes, sha256 {have}; remedy: {info.remedy}"
        )
    return data


def missing_notice(info: TextInfo) -> dict[str, str]:
    """Return language → the sentence that says why a known text is missing: ``DUALML_DATA`` is not
    set, or has no such file. Whether it is missing is not checked."""
    chosen, file = os.environ.get("DUALML_DATA"), f"{info.name}/{info.file}"
    if not chosen:
        return all_languages("notice.not_set", name=info.name)
    return all_languages("notice.not_there", name=info.name, folder=chosen, file=file)


def check_text_file(info: TextInfo, path: Path | None) -> str | None:
    """Return what is wrong with the content of a text, None if nothing is; ``path`` is the text's
    file, None if it is generated."""
    if path is not None:
        try:
            read_verified_text(info, path)
        except UserError as error:
            return str(error)
        return None
    have = lines_sha256(generate_lines(info))
    return None if have == info.sha256 else f"{info.name}: expected {info.sha256}, found {have}"


def lines_sha256(lines: list[text.Line]) -> str:
    """Return the SHA-256, hexadecimal, of lines as they would be written to a file: words separated
    by a space, each line ended by a newline."""
    return hashlib.sha256("".join(f"{' '.join(line)}\n" for line in lines).encode()).hexdigest()


def stand_in_notice(
    notice: str,
    wanted: TextInfo | DatasetInfo,
    used: TextInfo | DatasetInfo,
    why: Mapping[str, str],
    **more: object,
) -> dict[str, str]:
    """Return language → the notice for console and report that the dataset ``used`` stands in for
    ``wanted``, which is missing.

    Args:
        notice: name of its message: ``text``, ``labelled`` or ``images``.
        why: language → the reason.
        more: further values of the message.
    """
    values = {"used": used.name, "what": used.what, **more}
    values |= {"wanted": wanted.name, "remedy": wanted.remedy}
    return {
        lang: load_messages(lang)[f"notice.{notice}"].format(why=why[lang], **values)
        for lang in LANGUAGES
    }
