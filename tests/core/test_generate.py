"""`dualml generate`: text from the weights of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import dualml, lab, run

from dualml.algorithms.model import initial_weights, model
from dualml.backend.reference.model import Model
from dualml.common.errors import UserError
from dualml.runner.session.generate import generate, generate_tokens, join_lines, sample_token

pytestmark = pytest.mark.whole

__all__ = ["lab"]

#: A text in which every character has exactly one successor.
LOOP = "abcdefgh"
TOML = """
name = "tiny-gpt"
model = "gpt_llama"
sizes = { width = 16, heads = 2, blocks = 1 }
title = { en = "Tiny", zh = "小" }
[data]
name = "loop.txt"
length = 6
tokens = "characters"
[arms.adam]
optimizer = { name = "adam", lr = 0.02 }
batch_size = 20
updates = 60
[arms.lstm]
model = "rnn_lm"
optimizer = { name = "adam", lr = 0.02 }
batch_size = 20
updates = 1
"""


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    (folder / "loop.txt").write_text(f"{LOOP}\n" * 400)
    lab = folder / "tiny.toml"
    lab.write_text(TOML.replace("loop.txt", str(folder / "loop.txt")))
    code, told = run(lab, folder / "out")
    assert code == 0, told
    return folder / "out"


def test_a_model_goes_on_as_it_was_trained(trained_run: Path) -> None:
    made = generate(trained_run, prompt="abc", length=14, temperature=0)
    assert made.text == "abcdefgh\nabcdefgh"
    assert (made.arm, made.backend, made.seed, made.unknown) == ("adam", "numpy", 0, ())
    assert generate(trained_run, length=9, temperature=0).text == f"{LOOP}\n"
    lines = generate(trained_run, prompt=f"{LOOP}\n{LOOP}\nab", length=3, temperature=0).text
    assert lines == f"{LOOP}\n{LOOP}\nabcde", "a prompt longer than the model sees"


def test_draws_are_those_of_their_seed(trained_run: Path) -> None:
    texts = {
        seed: generate(trained_run, length=40, temperature=3.0, seed=seed).text for seed in (1, 2)
    }
    assert texts[1] != texts[2]
    assert generate(trained_run, length=40, temperature=3.0, seed=1).text == texts[1]
    assert "<" not in texts[1], "a word that is not known is never drawn"


def test_the_command(trained_run: Path) -> None:
    words = ("--prompt", "xab", "--length", "6", "--temperature", "0")
    done = dualml("generate", trained_run, *words)
    assert (done.returncode, done.stdout) == (0, "xabcdefgh\n")
    assert "weights of adam on numpy, after 60 updates" in done.stderr
    assert "not in the vocabulary, taken as <unk>: x" in done.stderr
    told = json.loads(dualml("generate", trained_run, *words, "--json").stdout)
    assert told.pop("schema") == "dualml.generate/1"
    assert told == {
        "arm": "adam",
        "backend": "numpy",
        "seed": 0,
        "prompt": "xab",
        "text": "xabcdefgh",
        "unknown": ["x"],
        "updates": 60,
    }
    done = dualml("generate", trained_run, *words, "--arm", "lstm", "--json")
    assert json.loads(done.stdout)["arm"] == "lstm"


def test_what_cannot_be_generated(trained_run: Path, lab: Path, tmp_path: Path) -> None:
    for options, said in (
        ({"arm": "adm"}, "no arm 'adm'; did you mean 'adam'"),
        ({"backend": "torch"}, "no trial ran on backend 'torch'; known: numpy"),
        ({"length": 0}, "--length is a number of tokens from 1 to 100,000; received 0"),
        ({"temperature": -1.0}, "--temperature is a number from 0 on; received -1.0"),
    ):
        with pytest.raises(UserError, match=said):
            generate(trained_run, **options)  # type: ignore[arg-type]
    code, _ = run(lab, tmp_path / "images", "--arm", "sgd")
    assert code == 0
    done = dualml("generate", tmp_path / "images")
    assert done.returncode == 2
    assert "softmax does not go on with a text; generate takes runs of rnn_lm, " in done.stderr
    done = dualml("generate", tmp_path / "none")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_weights_of_a_checkpoint_or_none(trained_run: Path, tmp_path: Path) -> None:
    from dualml.common.arrays import read_tensors
    from dualml.experiment.store.checkpoint import Progress, save_checkpoint

    place = trained_run / "trials" / "adam" / "numpy" / "seed0"
    final = place / "weights.safetensors"
    weights, kept = read_tensors(final), final.read_bytes()
    wanted = generate(trained_run, prompt="ab", length=5, temperature=0).text
    final.unlink()
    try:
        with pytest.raises(UserError, match=r"no trial has weights \(adam on numpy: ok\)"):
            generate(trained_run, arm="adam")
        save_checkpoint(place, 0, Progress(step=3), weights, {}, {})
        assert generate(trained_run, prompt="ab", length=5, temperature=0).text == wanted
        weights.pop("head.weight")
        save_checkpoint(place, 0, Progress(step=3), weights, {}, {})
        with pytest.raises(UserError, match=r"the checkpoint has no head\.weight"):
            generate(trained_run, arm="adam")
    finally:
        (place / "checkpoint.safetensors").unlink(missing_ok=True)
        final.write_bytes(kept)


def test_what_stands_behind_the_last_token_is_not_looked_at() -> None:
    """A window that is not full gives the same token as the logits of the whole text."""
    spec = model("gpt_llama", words=11, length=8)
    referee = Model(spec, initial_weights(spec, 0))
    stream = [3, 5, 7]
    (token,) = generate_tokens(referee, stream, 0, np.random.default_rng(0), 1)
    full = np.array([[3, 5, 7, 9, 9, 1, 2, 4]])
    logits = referee.forward(full)[0][0, 2]
    assert token == 1 + logits[1:].argmax()


def test_a_temperature_sharpens_and_flattens() -> None:
    logits, draw = np.array([0.0, 1.0, 3.0]), np.random.default_rng(0)
    shares = [
        np.bincount([sample_token(logits, t, draw) for _ in range(2000)], minlength=3) / 2000
        for t in (1.0, 1e-3, 1e3)
    ]
    wanted = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(shares[0], wanted, atol=0.03)
    assert shares[1].tolist() == [0, 0, 1]
    np.testing.assert_allclose(shares[2], 1 / 3, atol=0.05)
    assert sample_token(logits, 0, draw) == 2
    assert sample_token(np.array([-np.inf, 0.0, 800.0]), 1e-300, draw) == 2


def test_words_are_put_together_as_lines() -> None:
    assert join_lines(["a", "b", "<eos>", "c"], " ") == "a b\nc"
    assert join_lines(["a", " ", "b", "<eos>"], "") == "a b\n"
