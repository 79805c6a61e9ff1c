"""Conversion of a text to samples of a language model: lines, words, vocabulary, windows of tokens.

Every step only counts, so that the samples are the same on every machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import fingerprint
from dualml.common.errors import UserError
from dualml.common.files import read_bytes
from dualml.common.machine import usable_memory
from dualml.experiment.data.dataset import Dataset, Source

Line = list[str]
Tokens = Literal["words", "characters"]

WORDS, LENGTH = 2_000, 32  # words of the vocabulary; tokens of a window
UNKNOWN, END = "<unk>", "<eos>"
SPECIAL = (UNKNOWN, END)  # their tokens are 0 and 1
TEST_DIVISOR = 10  # one line in so many is for testing

#: Ideographs and kana.
CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
#: Words of a line without spaces: single characters, but runs of ASCII letters and digits.
CHARACTERS = re.compile(r"[A-Za-z0-9]+|\S")
#: A space beside a Chinese or Japanese letter or mark.
WIDE = f"[\u3000-\u303f\uff00-\uffef{CJK.pattern[1:]}"
SPACE_BESIDE_WIDE = re.compile(f"(?<={WIDE}) | (?={WIDE})")


def read_text_file(path: Path) -> str:
    """Read a UTF-8 text file.

    Raises:
        UserError: the file is missing, a directory, unreadable, empty, or not UTF-8.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory; name the text file in it")
    try:
        data = read_bytes(path, usable_memory() // 2)
    except FileNotFoundError:
        raise UserError(f"there is no text file {path}; check the path") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start:,} of "
            f"{len(data):,}; remedy: save it as UTF-8, or use iconv -f GB18030 -t UTF-8"
        ) from None
    if not text.strip():
        raise UserError(f"{path} is empty: {len(data):,} bytes without a word; name another text")
    return text


def split_lines(text: str, tokens: Tokens = "words") -> tuple[list[Line], int]:
    """Split a text into the words of each non-empty line, and count the lines that were split into
    characters for lack of spaces; with ``characters`` split every line by `to_characters`, with a
    count of 0.

    White space separates words. In a line without an ASCII space but with Chinese or Japanese
    letters every character is a word, while ASCII letters and digits stay together:
    ``用PyTorch训练`` is ``用``, ``PyTorch``, ``训``, ``练``.
    """
    lines, joined = [], 0
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.strip()
        if not line:
            continue
        if tokens == "characters":
            lines += to_characters([line.split()])
            continue
        whole = " " not in line and CJK.search(line) is not None
        joined += whole
        lines.append(CHARACTERS.findall(line) if whole else line.split())
    return lines, joined


def to_characters(lines: Sequence[Line]) -> list[Line]:
    """Split words into characters, with one space where white space was, except beside Chinese and
    Japanese letters, where only the segmentation put it.

    Example:
        >>> to_characters([["我", "爱", "machine", "learning"]]) == [list("我爱machine learning")]
        True
    """
    return [list(SPACE_BESIDE_WIDE.sub("", " ".join(line))) for line in lines]


def split_train_test(lines: Sequence[Line]) -> tuple[Sequence[Line], Sequence[Line]]:
    """Split lines into training and test part: the last tenth, at least one line, is for
    testing."""
    train = len(lines) - max(1, len(lines) // TEST_DIVISOR)
    return lines[:train], lines[train:]


def build_vocabulary(
    lines: Sequence[Line], words: int, special: Sequence[str] = SPECIAL
) -> tuple[str, ...]:
    """Return at most ``words`` words by token: the ``special`` ones, which count, then the most
    frequent.

    Equally frequent words keep the order of their first appearance.
    """
    counts = Counter(word for line in lines for word in line if word not in special)
    ranked = sorted(counts, key=lambda word: -counts[word])  # stable: in the order of appearance
    return (*special, *ranked[: words - len(special)])


def encode_stream(lines: Sequence[Line], known: Sequence[str]) -> NDArray[np.int32]:
    """Encode all lines as one stream of tokens int32 (tokens,): each word's index in ``known``, 0
    if it is unknown, and the token of `END` after each line."""
    number = {word: token for token, word in enumerate(known)}
    stream = [number.get(word, 0) for line in lines for word in (*line, END)]
    return np.array(stream, np.int32)


def make_windows(
    stream: NDArray[np.int32], length: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Cut a stream into independent windows: tokens int32 (N, length), and the next tokens int64
    (N, length).

    N = (tokens - 1) // length; the remainder at the end is dropped.
    """
    n = max(0, (len(stream) - 1) // length)
    x = stream[: n * length].reshape(n, length)
    y = stream[1 : n * length + 1].reshape(n, length)
    return x, y.astype(np.int64)


def make_text_dataset(
    name: str,
    source: Source,
    lines: Sequence[Line],
    *,
    words: int,
    length: int,
    notice: dict[str, str] | None = None,
    path: Path | None = None,
) -> Dataset:
    """Make the dataset of a text for a language model.

    Args:
        words: largest size of the vocabulary, including `SPECIAL`.
        length: tokens of a window.
        path: path of the file, if ``name`` alone does not identify it.

    Raises:
        UserError: too few words for one window of each part.
    """
    train, test = split_train_test(lines)
    known = build_vocabulary(train, words)
    streams = [encode_stream(part, known) for part in (train, test)]
    least = min(map(len, streams))
    if least <= length:
        remedy = f"lower data.length to at most {least - 1}, or take" if least > 2 else "take"
        raise UserError(
            f"{name} is too short: its {len(lines):,} lines have {len(streams[0]):,} tokens for "
            f"training and {len(streams[1]):,} for testing (ends of lines included), and a window "
            f"of data.length = {length:,} needs {length + 1:,} of each; {remedy} a longer text"
        )
    arrays = (*make_windows(streams[0], length), *make_windows(streams[1], length))
    return Dataset(
        name,
        source,
        notice,
        *arrays,
        sha256=fingerprint(*arrays),
        mean=0.0,
        std=1.0,
        classes=known,
        kind="text",
        path=None if path is None else str(path),
    )
