"""Labelled sentences: tokens and padding, vocabulary, sources, and files that do not fit."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dualml.algorithms.model import model
from dualml.algorithms.model.layers import PADDING
from dualml.common.errors import UserError
from dualml.experiment.data import TEXTS, corpora, labelled, load
from dualml.experiment.data.feelings import WORDS, make_labelled_sentences
from dualml.experiment.freeze import model_for
from dualml.experiment.schema import Experiment

REAL = Path(os.environ.get("DUALML_DATA") or "nowhere")
ENTRIES = [(["a", "b", "a"], 0), (["b", "c"], 1), (["a"], 0), (["d", "a", "b", "c"], 1)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DUALML_DATA", raising=False)
    monkeypatch.setenv("DUALML_OFFLINE", "1")
    return tmp_path


def test_words_are_tokens_what_is_shorter_is_padded_what_is_longer_is_cut() -> None:
    data = labelled.make_labelled_dataset(
        "x", "file", ENTRIES, ("p", "q"), labelled.SentenceEncoding(4, 3)
    )
    assert data.vocabulary == ("<pad>", "<unk>", "a", "b")
    assert data.train_x.tolist() == [[2, 3, 2], [3, 1, 0]]
    assert data.validation_x is not None
    assert data.validation_x.tolist() == [[2, 0, 0]]
    assert data.test_x.tolist() == [[1, 2, 3]]
    labels = (data.train_y, data.validation_y, data.test_y)
    assert [y is not None and y.tolist() for y in labels] == [[0, 1], [0], [1]]
    assert data.vocabulary.index("<pad>") == PADDING
    assert (data.kind, data.classes) == ("labelled", ("p", "q"))
    assert data.cut == 1


def test_a_label_that_is_no_class_is_named() -> None:
    with pytest.raises(UserError, match=r"sentence 2 \(b c…\): label 1 is none of 1 classes"):
        labelled.make_labelled_dataset(
            "x", "file", ENTRIES, ("p",), labelled.SentenceEncoding(9, 3)
        )


@pytest.mark.parametrize(
    ("total", "sizes"),
    [
        (3, (1, 1, 1)),
        (19, (17, 1, 1)),
        (20, (16, 2, 2)),
        (100, (80, 10, 10)),
        (4_019, (3217, 401, 401)),
    ],
)
def test_eight_parts_train_one_validates_one_tests(total: int, sizes: tuple[int, ...]) -> None:
    every = list(range(total))
    train, validation, test = (every[part] for part in labelled.split_slices("x", total))
    assert (len(train), len(validation), len(test)) == sizes
    assert train + validation + test == every


def test_too_few_sentences_for_three_parts() -> None:
    with pytest.raises(UserError, match="x has 2 sentences; training, validation and test need"):
        labelled.make_labelled_dataset(
            "x", "file", ENTRIES[:2], ("p", "q"), labelled.SentenceEncoding(9, 3)
        )


def test_the_fingerprint_is_of_the_validation_part_too() -> None:
    same, other = (
        labelled.make_labelled_dataset(
            "x",
            "file",
            [*ENTRIES[:2], third, ENTRIES[3]],
            ("p", "q"),
            labelled.SentenceEncoding(9, 3),
        )
        for third in (ENTRIES[2], (["b"], 0))
    )
    assert same.train_x.tolist() == other.train_x.tolist()
    assert same.test_x.tolist() == other.test_x.tolist()
    assert same.sha256 != other.sha256


def test_the_sentences_made_here_are_the_same_everywhere() -> None:
    made = make_labelled_sentences()
    assert len(made) == TEXTS["feelings"].lines
    assert corpora.check_text_file(TEXTS["feelings"], None) is None
    assert min(Counter(label for _, label in made).values()) > len(made) / len(WORDS) / 1.2
    assert len(WORDS) == len(TEXTS["feelings"].classes)


@pytest.mark.usefixtures("home")
def test_they_stand_in_for_those_that_are_not_there() -> None:
    data = load("emotion", explicit=False, labels=True, length=20)
    assert (data.name, data.source, data.classes) == (
        "feelings",
        "generated",
        tuple(TEXTS["feelings"].classes),
    )
    assert data.notice is not None
    assert "feelings" in data.notice["en"]
    assert data.train_x.shape == (2400, 20)
    assert data.validation_x is not None
    assert data.validation_x.shape == (300, 20)
    with pytest.raises(UserError, match=r"remedy: put train\.json"):
        load("emotion", explicit=True, labels=True)


@pytest.mark.usefixtures("home")
def test_without_labels_they_are_a_text_like_any_other() -> None:
    data = load("feelings", explicit=True)
    assert (data.kind, data.train_y.shape) == ("text", data.train_x.shape)


@pytest.mark.parametrize("name", ["sentences", "mine.txt"])
def test_a_text_without_labels_says_so(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} has no labels; .* emotion and feelings"):
        load(name, explicit=True, labels=True)


@pytest.mark.skipif(not (REAL / "emotion").exists(), reason="needs the emotion set")
def test_the_real_set() -> None:
    data = load("emotion", explicit=True, labels=True, words=4000, length=32)
    assert data.train_x.shape == (32_107, 32)
    assert data.validation_y is not None
    assert (len(data.validation_y), len(data.test_y)) == (4_013, 4_013)
    assert len(data.vocabulary) == 4_000
    assert np.bincount(np.concatenate([data.train_y, data.validation_y, data.test_y])).tolist() == [
        13_993,
        6_697,
        5_348,
        5_978,
        3_167,
        4_950,
    ]


def experiment(name: str, labels: bool) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "x",
            "title": {"en": "x"},
            "model": name,
            "data": {"name": "feelings", "labels": labels},
            "arms": {"a": {"optimizer": {"name": "adam", "lr": 0.001}}},
        }
    )


@pytest.mark.parametrize(
    ("name", "labels", "said"),
    [
        ("text_classifier", False, "'text_classifier' classifies sentences: it needs data.labels"),
        ("rnn_lm", True, "data.labels = true is for models that classify .*text_classifier"),
        ("lenet", True, "'lenet' takes .* images; feelings is a text"),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_model_and_data_of_different_tasks(name: str, labels: bool, said: str) -> None:
    data = load("feelings", explicit=True, labels=labels)
    with pytest.raises(UserError, match=said):
        model_for(experiment(name, labels), data)


@pytest.mark.usefixtures("home")
def test_the_classifier_fits_its_data() -> None:
    data = load("feelings", explicit=True, labels=True, words=90, length=24)
    spec = model_for(experiment("text_classifier", True), data)
    assert spec.parameters()["embedding.weight"] == (90, 64)
    assert spec.parameters()["position.weight"] == (24, 64)
    assert spec.parameters()["head.weight"] == (6, 64)
    assert spec.needs_padding_mask
    assert not model("rnn_lm").needs_padding_mask


def test_padding_needs_tokens() -> None:
    from dualml.algorithms.model.layers import Linear, MeanPool
    from dualml.algorithms.model.spec import ModelSpec

    layers = (("fc", Linear(4, 3)), ("pool", MeanPool(masked=True)))
    with pytest.raises(UserError, match="padding is of tokens"):
        ModelSpec("x", (5, 4), layers)
