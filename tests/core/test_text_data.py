"""Texts: lines, words, vocabulary, windows, and the sources of a text."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.data import DATASETS, TEXTS, Dataset, corpora, fingerprint, load, text
from dualml.experiment.data.sentences import (
    INTRANSITIVE_VERBS,
    PEOPLE,
    PEOPLE_VERBS,
    make_sentences,
)

REAL = Path(os.environ.get("DUALML_DATA") or "nowhere")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No DUALML_DATA and no network."""
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(data: Dataset, row: int = 0) -> str:
    return " ".join(data.classes[token] for token in data.train_x[row])


# --- words and vocabulary ------------------------------------------------------------------------


def test_words_are_what_white_space_separates() -> None:
    got = text.split_lines("a  b\tc\r\n\n   \n d\u3000e \rf\n")
    assert got == ([["a", "b", "c"], ["d", "e"], ["f"]], 0)


@pytest.mark.parametrize(
    ("line", "words", "joined"),
    [
        ("我爱机器学习。", list("我爱机器学习。"), 1),
        ("用PyTorch2训练，好！", ["用", "PyTorch2", "训", "练", "，", "好", "！"], 1),
        ("第一\t第二", list("第一第二"), 1),  # a tab is no space between words
        ("我 爱 机器学习", ["我", "爱", "机器学习"], 0),
        ("すごい", list("すごい"), 1),
        ("unspaced-ascii", ["unspaced-ascii"], 0),
        ("größer", ["größer"], 0),
        ("𠀀𠀁", ["𠀀", "𠀁"], 1),
    ],
)
def test_characters_of_a_chinese_line_without_spaces_are_its_words(
    line: str, words: list[str], joined: int
) -> None:
    assert text.split_lines(line) == ([words], joined)


def test_the_last_tenth_of_the_lines_is_for_testing() -> None:
    for n, tests in ((1, 1), (2, 1), (19, 1), (20, 2), (105, 10)):
        lines = [[str(i)] for i in range(n)]
        train, test = text.split_train_test(lines)
        assert (len(test), [*train, *test]) == (tests, lines)


def test_the_vocabulary_holds_the_most_frequent_words_the_earlier_of_equal_ones() -> None:
    lines = [["z", "b", "a"], ["a", "c", "b"], ["<unk>", "<eos>", "<unk>", "z", "a"]]
    assert text.build_vocabulary(lines, 100) == ("<unk>", "<eos>", "a", "z", "b", "c")
    assert text.build_vocabulary(lines, 5) == ("<unk>", "<eos>", "a", "z", "b")
    assert text.build_vocabulary(lines, 3) == ("<unk>", "<eos>", "a")


def test_tokens_of_words_unknown_ones_and_ends() -> None:
    known = ("<unk>", "<eos>", "a", "b")
    stream = text.encode_stream([["b", "a", "x"], ["<unk>", "<eos>", "b"]], known)
    assert stream.tolist() == [3, 2, 0, 1, 0, 1, 3, 1]
    assert stream.dtype == np.int32


@pytest.mark.parametrize(
    ("tokens", "length", "n"),
    [(9, 4, 2), (8, 4, 1), (5, 4, 1), (4, 4, 0), (1, 4, 0), (0, 4, 0), (7, 1, 6)],
)
def test_windows_are_consecutive_and_the_target_is_the_next_token(
    tokens: int, length: int, n: int
) -> None:
    stream = np.arange(tokens, dtype=np.int32)
    x, y = text.make_windows(stream, length)
    assert (x.shape, y.shape, x.dtype, y.dtype) == ((n, length),) * 2 + (np.int32, np.int64)
    assert x.ravel().tolist() == list(range(n * length))
    assert np.array_equal(y, x + 1)


# --- whole datasets ------------------------------------------------------------------------------


def test_a_dataset_of_a_text(home: Path) -> None:
    lines = [f"one two {'rare' if i == 7 else 'three'} only{i}" for i in range(40)]
    (home / "my.txt").write_text("\n".join(lines))
    data = load("my.txt", explicit=False, words=5, length=6)
    assert (data.kind, data.name, data.source, data.notice) == ("text", "my.txt", "file", None)
    assert data.classes == ("<unk>", "<eos>", "one", "two", "three")
    assert (data.mean, data.std, data.path) == (0.0, 1.0, str(home.resolve() / "my.txt"))
    assert data.train_x.shape == ((36 * 5 - 1) // 6, 6)
    assert data.test_x.shape == ((4 * 5 - 1) // 6, 6)
    assert words_of(data) == "one two three <unk> <eos> one"
    stream = data.train_x.ravel()
    assert np.array_equal(stream[1:], data.train_y.ravel()[:-1])
    assert data.test_x[0].tolist() == [2, 3, 4, 0, 1, 2], "words of the test part are unknown"
    arrays = (data.train_x, data.train_y, data.test_x, data.test_y)
    assert [a.dtype.name for a in arrays] == ["int32", "int64"] * 2
    assert data.sha256 == fingerprint(*arrays)


def test_the_test_part_has_no_say_in_the_vocabulary(home: Path) -> None:
    (home / "a.txt").write_text("a b c d\n" * 18 + "new new new new\n" * 2)
    data = load("a.txt", explicit=True, length=4)
    assert "new" not in data.classes
    assert set(data.test_x.ravel().tolist()) == {0, 1}


def test_the_sentences_are_the_same_everywhere(home: Path) -> None:
    lines = make_sentences()
    assert len(lines) == TEXTS["sentences"].lines
    assert corpora.lines_sha256(lines) == TEXTS["sentences"].sha256
    data = load("sentences", explicit=True)
    assert data.sha256 == "2a5f13d738dd1cad03b74420ea9385a6a51bd5b5dbb10f05aa2ea419c0f98ab1"
    assert (data.source, data.notice, data.path) == ("generated", None, None)
    assert (data.train_x.shape, data.test_x.shape) == ((1368, 32), (151, 32))
    assert len(data.classes) == 120
    assert max(int(a.max()) for a in (data.train_x, data.train_y, data.test_x, data.test_y)) < 120


def test_verbs_of_the_sentences_agree_with_their_subjects() -> None:
    starts = [tuple(line[:3]) for line in make_sentences()]
    nouns = {pair[number]: number for pair in PEOPLE for number in (0, 1)}
    verbs = {
        pair[number]: number for pair in (*INTRANSITIVE_VERBS, *PEOPLE_VERBS) for number in (0, 1)
    }
    seen = {(nouns[b], verbs[c]) for _, b, c in starts if b in nouns and c in verbs}
    assert seen == {(0, 0), (1, 1)}
    articles = {(a, nouns[b]) for a, b, _ in starts if a in ("every", "many") and b in nouns}
    assert articles == {("every", 0), ("many", 1)}


# --- the text in DUALML_DATA ---------------------------------------------------------------------


@pytest.fixture
def emotion(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a small text file, registered with its checksum."""
    entries = [
        ["今天 很 开心\n", 5],
        [" ", 0],
        *([f"我 不 {word}", 3] for word in "高想去来走看" * 8),
    ]
    content = json.dumps(entries, ensure_ascii=False).encode()
    digest = hashlib.sha256(content).hexdigest()
    info = replace(TEXTS["emotion"], lines=49, size=len(content), sha256=digest)
    monkeypatch.setitem(TEXTS, "emotion", info)
    path = home / "data" / "emotion" / "train.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    monkeypatch.setenv("DUALML_DATA", str(home / "data"))
    return path


@pytest.mark.parametrize("explicit", [True, False])
def test_emotion_from_the_environment(emotion: Path, explicit: bool) -> None:
    data = load("emotion", explicit=explicit, length=4)
    assert (data.name, data.source, data.notice, data.path) == ("emotion", "env", None, None)
    assert words_of(data) == "今天 很 开心 <eos>"
    assert len(data.train_x) == (45 * 4 - 1) // 4


@pytest.mark.parametrize("explicit", [True, False])
def test_another_file_never_falls_back(emotion: Path, explicit: bool) -> None:
    emotion.write_bytes(emotion.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"train\.json is another file: expected .* found .*put"):
        load("emotion", explicit=explicit)


def test_emotion_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"emotion cannot be downloaded, and DUALML_DATA is not"):
        load("emotion", explicit=True)
    data = load("emotion", explicit=False, words=50, length=8)
    assert (data.name, data.source, data.train_x.shape[1]) == ("sentences", "generated", 8)
    assert len(data.classes) == 50
    assert data.notice is not None
    assert set(data.notice) == {"en", "zh"}
    for said in data.notice.values():
        assert all(part in said for part in ("sentences", "emotion", "train.json", "4,000"))
    monkeypatch.setenv("DUALML_DATA", str(home))
    with pytest.raises(UserError, match=r"DUALML_DATA=.* has no emotion/train\.json; remedy: put"):
        load("emotion", explicit=True)


@pytest.mark.skipif(not (REAL / "emotion").is_dir(), reason="DUALML_DATA has no folder emotion")
def test_the_real_emotion() -> None:
    data = load("emotion", explicit=True)
    assert data.train_x.shape[1] == 32
    assert len(data.train_x) > 10_000
    assert len(data.classes) == 2000
    assert words_of(data).startswith("<unk> 的 <unk>")
    assert 0.05 < float((data.train_x == 0).mean()) < 0.4


# --- any file ------------------------------------------------------------------------------------


def test_what_is_a_path(home: Path) -> None:
    (home / "plain").write_text("x")
    (home / "mnist").write_text("x")
    paths = ("a/b", "./mnist", "no.txt", "no.MD", "plain", "/nowhere")
    assert [name for name in paths if not corpora.is_text(name)] == []
    for name in (*DATASETS, "", "no", "mnits"):
        assert not corpora.is_text(name), name


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no text file my.txt"),
        (b"", "my.txt is empty: 0 bytes without a word"),
        (b" \n\r\n\t", "my.txt is empty: 5 bytes without a word"),
        ("好".encode() + "中文".encode("gb18030"), "is not UTF-8: byte 0xd6 at offset 3 of 7;"),
        ("text".encode("utf-16"), "is not UTF-8: byte 0xff at offset 0 of 10"),
        (
            b"a b c\n" * 12,
            "its 12 lines have 44 tokens for training and 4 for testing .* a window "
            "of data.length = 32 needs 33 of each; lower data.length to at most 3",
        ),
        (b"word", "its 1 lines have 0 tokens for training and 2 for testing .* 33 of each; take a"),
    ],
)
def test_files_that_are_no_text(
    home: Path, content: bytes | None, message: str, explicit: bool
) -> None:
    if content is not None:
        (home / "my.txt").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load("my.txt", explicit=explicit)
    assert "\n" not in str(caught.value)


def test_a_directory_is_no_text(home: Path) -> None:
    (home / "texts").mkdir()
    with pytest.raises(UserError, match=r"texts is a directory; name the text file in it"):
        load("./texts", explicit=True)


def test_the_suggested_length_works(home: Path) -> None:
    (home / "my.txt").write_bytes(b"a b c\n" * 12)
    assert load("my.txt", explicit=True, length=3).test_x.shape == (1, 3)


def test_a_byte_order_mark_is_no_word(home: Path) -> None:
    (home / "my.txt").write_bytes(b"\xef\xbb\xbf" + b"first second\n" * 20)
    assert load("my.txt", explicit=True, length=3).classes[2:] == ("first", "second")


def test_characters_as_words_are_said(home: Path) -> None:
    (home / "my.txt").write_text("天地玄黄\n" * 30 + "宇宙 洪荒\n" * 20, "utf-8")
    data = load("my.txt", explicit=True, length=4)
    assert data.notice is not None
    assert all("30" in said and "50" in said and "my.txt" in said for said in data.notice.values())
    assert {"天", "宇宙"} <= set(data.classes)


def test_unknown_names_know_texts() -> None:
    with pytest.raises(UserError, match="unknown dataset 'emotions'; did you mean 'emotion'"):
        load("emotions", explicit=True)
