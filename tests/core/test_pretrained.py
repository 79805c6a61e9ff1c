"""An experiment that starts from a BERT folder: the resulting model, and folders that do not
fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bert_folder import CONFIG, WORDS, change, write
from command import dualml, resumed, run
from safetensors.numpy import load_file, save_file

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.pretrained import PretrainedBert
from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.experiment.data import labelled
from dualml.experiment.data.wordpiece import WordPiece
from dualml.experiment.load import load
from dualml.experiment.pretrained import open_pretrained

pytest.importorskip("tokenizers")
TOML = """
name = "tiny-bert"
model = "bert"
pretrained = "bert"
title = { en = "Tiny", zh = "小" }
data = { name = "feelings", labels = true, train = 80, validation = 30, test = 40, length = 16 }
evaluation = { train_samples = 20, per_epoch = 1, early = [] }
[arms.one]
optimizer = { name = "adamw", lr = 0.003 }
batch_size = 20
epochs = 2
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    write(tmp_path / "bert")
    (tmp_path / "tiny.toml").write_text(TOML)
    return tmp_path / "tiny.toml"


@pytest.mark.whole
def test_a_run_from_a_folder_and_the_same_from_another_place(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "out")
    assert code == 0, told
    data, folder = told["data"], tmp_path / "bert"
    assert (data["pretrained"], data["vocabulary"]) == (str(folder), len(WORDS))
    assert data["vocabulary_sha256"] == WordPiece.open(folder).sha256
    assert "of feelings have more than 16 tokens and are cut" in data["notice"]["en"]
    assert f"中有 {data['cut']:,} 个超过 16 个词元" in data["notice"]["zh"]
    assert "attention_probs_dropout_prob = 0.1 of bert is not applied" in data["notice"]["en"]
    assert "bert has no classifier of 6 classes: the last layer is drawn" in data["notice"]["en"]
    assert told["trials"][0]["best"]["validation_loss"] > 0

    planned, given = (
        load_file(tmp_path / "out/plan/weights.safetensors"),
        load_file(folder / "model.safetensors"),
    )
    assert (
        planned["seed0/kind.bias"] == given["bert.embeddings.token_type_embeddings.weight"][0]
    ).all()
    assert (
        planned["seed0/embedding.weight"] == given["bert.embeddings.word_embeddings.weight"]
    ).all()
    drawn = initial_weights(open_pretrained(load(str(lab))).spec(16, 6), 0)
    assert (planned["seed0/head.weight"] == drawn["head.weight"]).all()
    assert not (planned["seed0/pooler.weight"] == drawn["pooler.weight"]).any()

    (tmp_path / "moved").mkdir()
    folder.rename(tmp_path / "moved" / "bert")
    lab.rename(tmp_path / "moved" / "tiny.toml")
    _, again = run(tmp_path / "moved" / "tiny.toml", tmp_path / "again")
    assert again["plan_hash"] == told["plan_hash"], "what is in the folder counts, not where it is"
    assert again["trials"][0]["best"] == told["trials"][0]["best"]

    done = resumed(tmp_path / "out")
    assert done.returncode == 2
    assert f"pretrained: {folder} has no vocab.txt" in done.stderr
    write(folder, (*WORDS[:-1], "##ed"))
    done = resumed(tmp_path / "out")
    assert done.returncode == 2
    assert f"the vocabulary in {folder} is not the one of the plan" in done.stderr
    write(folder)
    done = resumed(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"][0]["best"] == told["trials"][0]["best"]


def test_a_path_is_relative_to_the_file_and_on_the_command_line_to_the_working_directory(
    lab: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load(str(lab)).pretrained == str(tmp_path / "bert")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load(str(lab), overrides=["pretrained=mine"]).pretrained == str(tmp_path / "here/mine")
    assert load(str(lab), overrides=["pretrained=/a/b"]).pretrained == "/a/b"
    assert load(str(lab), overrides=["pretrained=''"]).pretrained == ""


def test_a_folder_of_the_command_line_brings_its_vocabulary(tmp_path: Path) -> None:
    write(tmp_path / "bert")
    overrides = ["model=bert", f"pretrained={tmp_path / 'bert'}", "data.length=16"]
    assert open_pretrained(load("methods", overrides=overrides)).config.vocab_size == len(WORDS)
    with pytest.raises(UserError, match=r"data.words = 70 is for a vocabulary made of the text"):
        open_pretrained(load("methods", overrides=[*overrides, "data.words=70"]))


def test_without_a_folder_nothing_is_said_of_one(lab: Path) -> None:
    lab.write_text(TOML.replace('pretrained = "bert"\n', ""))
    assert "pretrained" not in load(str(lab)).describe()
    spec = model("bert", words=90, length=16, classes=6)
    shapes = spec.parameters()
    assert shapes["qkv1.weight"] == (384, 128)
    assert (shapes["up2.weight"], shapes["head.weight"]) == ((512, 128), (6, 128))
    assert len(spec.dropout_names) == 6


def test_a_head_of_the_right_size_is_taken(lab: Path, tmp_path: Path) -> None:
    write(tmp_path / "bert", classes=6)
    found = PretrainedBert.open(tmp_path / "bert")
    assert found.has_head(6)
    assert not found.has_head(5)
    given = load_file(tmp_path / "bert" / "model.safetensors")["classifier.weight"]
    assert (found.weights(16, 6)["head.weight"] == given).all()
    assert "head.weight" not in found.weights(16, 5)


def test_old_names_and_half_precision_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert")
    before = PretrainedBert.open(folder).weights(8, 6)
    there = load_file(folder / "model.safetensors")
    old = {}
    for name, array in there.items():
        name = name.removeprefix("bert.").replace("Norm.weight", "Norm.gamma")
        old[name.replace("Norm.bias", "Norm.beta")] = array.astype(np.float16)
    save_file(old, folder / "model.safetensors")
    after = PretrainedBert.open(folder).weights(8, 6)
    assert after.keys() == before.keys()
    for name, array in after.items():
        assert array.dtype == np.float32
        assert (array == before[name].astype(np.float16)).all(), name


def test_dropout_is_that_of_the_config(tmp_path: Path) -> None:
    rates = {"hidden_dropout_prob": 0.0, "classifier_dropout": 0.3}
    spec = PretrainedBert.open(write(tmp_path / "bert", **rates)).spec(8, 6)
    assert spec.dropout_names == ("head_dropout",)
    assert dict(spec.layers)["head_dropout"].describe()["rate"] == 0.3


def tokens(folder: Path, *lines: str, length: int = 8) -> list[list[int]]:
    rows, _ = WordPiece.open(folder).encode_sentences("x", [line.split() for line in lines], length)
    return rows.tolist()


def test_tokens_begin_and_end_and_are_padded_or_cut(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert")
    one, two, ing = (WORDS.index(word) for word in ("我", "他", "##ing"))
    play = WORDS.index("play")
    assert tokens(folder, "我 他", "我他", "Playing 我") == [
        [2, one, two, 3, 0, 0, 0, 0],
        [2, one, two, 3, 0, 0, 0, 0],
        [2, play, ing, one, 3, 0, 0, 0],
    ]
    assert tokens(folder, "我 他 我 他", length=4) == [[2, one, two, 3]]
    assert WordPiece.open(folder).encode_sentences("x", [["我"] * 7, ["我"] * 6], 8)[1] == 1
    # What looks like a token of its own is no padding and no end.
    assert tokens(folder, "[PAD]", "[SEP]", length=6) == [[2, 1, 1, 1, 3, 0]] * 2


def test_the_settings_of_the_tokenizer(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert")
    before = WordPiece.open(folder)
    settings: dict[str, Any] = {"do_lower_case": False, "tokenize_chinese_chars": False}
    settings |= {"model_max_length": 10**30, "other": [1]}  # as transformers writes it
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert tokens(folder, "Play", "我他", length=4) == [[2, 1, 3, 0]] * 2
    assert WordPiece.open(folder).sha256 != before.sha256


def broken(folder: Path, how: str) -> None:
    config = folder / "config.json"
    name, _, value = how.partition("=")
    if value:
        config.write_text(json.dumps(CONFIG | {name: json.loads(value)}))
    else:
        (folder / how).unlink()


WRONG = [
    ("config.json", r"pretrained: \S+ has no config.json"),
    ("model.safetensors", r"pretrained: \S+ has no model.safetensors; save .* in float32"),
    ("vocab.txt", r"pretrained: \S+ has no vocab.txt"),
    ('model_type="roberta"', r"config.json: model_type: .*'bert'.*; a BERT is expected"),
    ('hidden_act="relu"', r"config.json: hidden_act: .*'gelu'.*'relu'"),
    ('position_embedding_type="relative_key"', r"position_embedding_type: .*'absolute'"),
    ("is_decoder=true", r"is_decoder: "),
    ('hidden_size="16"', r"hidden_size: .*valid integer.*'16'"),
    ("num_hidden_layers=0", r"num_hidden_layers: .*greater than or equal to 1"),
    ("hidden_dropout_prob=1.0", r"hidden_dropout_prob: .*less than 1"),
    ("num_attention_heads=3", r"hidden_size = 16 is no multiple of num_attention_heads = 3"),
    ("max_position_embeddings=12", r"data.length = 16.* max_position_embeddings = 12: lower .* 12"),
    ("vocab_size=40", rf"vocab.txt has {len(WORDS)} tokens, and .* embedding 40 rows"),
    (
        "intermediate_size=25",
        r"model.safetensors does not fit config.json: encoder.layer.0.intermediate.dense.weight: "
        r"expected \(25, 16\), found \(24, 16\); encoder.layer.0.intermediate.dense.bias: expected "
        r"\(25,\), found \(24,\); .*remedy",
    ),
    (
        "num_hidden_layers=4",
        r"layer.2\S+: expected \(16, 16\), found nothing; .*; and 22 more; remedy",
    ),
]


@pytest.mark.parametrize(("how", "said"), WRONG)
def test_what_does_not_fit(lab: Path, tmp_path: Path, how: str, said: str) -> None:
    broken(tmp_path / "bert", how)
    with pytest.raises(UserError, match=said):
        open_pretrained(load(str(lab)))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pretrained=/nowhere/bert", "there is no folder /nowhere/bert; name one with config.json"),
        ("data.length=2", r"data.length = 2: \[CLS\], a token and \[SEP\] need 3"),
        ("data.words=90", "data.words = 90 .* pretrained brings its own: leave it out"),
    ],
)
def test_settings_that_do_not_fit(lab: Path, setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        open_pretrained(load(str(lab), overrides=[setting]))


def test_a_folder_for_another_model(lab: Path) -> None:
    with pytest.raises(
        UserError, match="is for model = 'bert'; received model = 'text_classifier'"
    ):
        load(str(lab), overrides=["model=text_classifier"])


def words(**places: int) -> tuple[str, ...]:
    """Return the vocabulary with some special tokens at other positions."""
    out = list(WORDS)
    for word, at in places.items():
        out.remove(f"[{word}]")
        out.insert(at, f"[{word}]")
    return tuple(out)


def test_padding_that_is_another_token(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert", words(PAD=1))
    with pytest.raises(
        UserError, match=r"\[PAD\] is token 1 \(line 2\), .* change places with '\[UNK\]'"
    ):
        WordPiece.open(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[PAD]\n[UNK]\nx\n", r"\[CLS\], \[SEP\] are missing among its 3 lines"),
        (b"", r"\[PAD\], \[UNK\], \[CLS\], \[SEP\] are missing"),
        (b"[PAD]\n\xff\n", "vocab.txt is not UTF-8: byte 6"),
    ],
)
def test_a_vocabulary_that_is_none(tmp_path: Path, content: bytes, said: str) -> None:
    folder = write(tmp_path / "bert")
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises(UserError, match=said):
        WordPiece.open(folder)


def test_lines_that_end_as_on_another_system(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert")
    (folder / "vocab.txt").write_bytes("\r\n".join(WORDS).encode())
    assert WordPiece.open(folder).words == WORDS


@pytest.mark.parametrize("settings", ["{", '{"do_lower_case": "yes"}', "[]"])
def test_settings_that_are_damaged(tmp_path: Path, settings: str) -> None:
    folder = write(tmp_path / "bert")
    (folder / "tokenizer_config.json").write_text(settings)
    with pytest.raises(UserError, match=r"tokenizer_config.json: "):
        WordPiece.open(folder)


@pytest.mark.parametrize("config", ["{", "[]", "3"])
def test_a_config_that_is_damaged(tmp_path: Path, config: str) -> None:
    folder = write(tmp_path / "bert")
    (folder / "config.json").write_text(config)
    with pytest.raises(UserError, match=r"config.json: "):
        PretrainedBert.open(folder)


def test_tensors_that_are_damaged_or_of_another_type(tmp_path: Path) -> None:
    folder = write(tmp_path / "bert")
    change(folder, pooler__dense__bias=np.zeros(16, np.int64))
    with pytest.raises(UserError, match=r"pooler.dense.bias: expected F32, found I64; remedy"):
        PretrainedBert.open(folder).check_tensors()
    change(folder, pooler__dense__bias=None)
    with pytest.raises(UserError, match=r"pooler.dense.bias: expected \(16,\), found nothing; rem"):
        PretrainedBert.open(folder).check_tensors()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"model.safetensors: not readable; save "):
        PretrainedBert.open(folder).check_tensors()


def test_a_sentence_without_a_token_is_named(tmp_path: Path) -> None:
    pieces = WordPiece.open(write(tmp_path / "bert"))
    entries: list[Any] = [(["我"], 0), (["\u200b", "\x07"], 1), (["他"], 0)]
    encoding = labelled.SentenceEncoding(9, 8, pieces)
    with pytest.raises(UserError, match=r"x, sentence 2 \(.*\) has no token: .* leave it out"):
        labelled.make_labelled_dataset("x", "file", entries, ("p", "q"), encoding)


def test_without_the_library_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        UserError, match=r"needs the package tokenizers; pip install 'dualml\[bert\]'"
    ):
        tokens(write(tmp_path / "bert"), "我")


def test_the_command_says_it_in_one_line(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "bert" / "config.json").unlink()
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "has no config.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_reports_number_of_bytes_is_that_of_the_folder(lab: Path, tmp_path: Path) -> None:
    from dualml.experiment.store.load import load as read
    from dualml.report.machine import vector_bytes

    run(lab, tmp_path / "out")
    shapes = read_json(tmp_path / "out" / "plan" / "plan.json")["model"]
    assert {layer["outputs"] for layer in shapes["layers"] if layer["name"] == "up1"} == {24}
    given = load_file(tmp_path / "out/plan/weights.safetensors")
    assert vector_bytes(read([tmp_path / "out"])) == sum(w.nbytes for w in given.values())
