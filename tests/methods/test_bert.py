"""`bert` against transformers' own: tokens, logits and all gradients, on all backends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model.pretrained import KIND, PretrainedBert, module_names
from dualml.algorithms.optim import AdamW
from dualml.backend import TrainingSpec, backends
from dualml.common.errors import Unsupported, UserError
from dualml.experiment.data.wordpiece import WordPiece

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
LENGTH, CLASSES, BLOCKS = 14, 6, 2
WORDS = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"我他很喜欢这里看电影难过开心一点也不，。！？",
    "py", "##torch", "the", "play", "##ing", "##s", "!", "[", "]", "(", ")", "a", "b", "##b", "1",
    "##2", "'", "don", "t", "e", "cafe", "%",
)  # fmt: skip
SENTENCES = (
    "我 很 喜欢 这里 。",
    "他 一点 也 不 难过 ！",
    "PyTorch 很 难 ， 他 看 the plays",
    "Don't play (ab12) 100%!",
    "Café CAFÉ 电影\t看\u00a0a\u3000b",
    "开心 [ 泪 ] 😀 b",
    "ａ ① 한국 ñ x\u200by",
    "他" * 30,
)
#: Relative distance of a tensor caused by rounding.
ROUNDING = {"numpy": 1e-13, "torch": 2e-6, "mindspore": 2e-6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights, saved by transformers."""
    from dualml_torch.experiment.data import import_torchvision

    with contextlib.suppress(Unsupported):  # transformers imports it; it may be of another build
        import_torchvision()
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=BLOCKS,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=20,
        num_labels=CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():  # so that no bias is zero, and no norm the identity
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def batch(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    rows, cut = WordPiece.open(folder).encode_sentences("x", [s.split() for s in SENTENCES], LENGTH)
    assert 0 < cut < len(rows)
    assert (rows == 0).any(), "padding takes part"
    labels = np.array([0, 5, 2, 3, 1, 4, 2, 0])
    np.savez(folder / "batch.npz", x=rows, y=labels)
    return rows, labels


def test_tokens_are_those_of_transformers(folder: Path, batch: Any, tmp_path: Path) -> None:
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    encoded = tokenizer(list(SENTENCES), padding="max_length", truncation=True, max_length=LENGTH)
    assert batch[0].tolist() == encoded["input_ids"]
    assert (batch[0] != 0).astype(int).tolist() == encoded["attention_mask"]
    tokenizer.save_pretrained(tmp_path)
    for name in ("vocab.txt", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    again, _ = WordPiece.open(tmp_path).encode_sentences(
        "x", [s.split() for s in SENTENCES], LENGTH
    )
    assert (again == batch[0]).all(), "with the settings that transformers writes"
    joined = [sentence.replace(" ", "") for sentence in SENTENCES[:2]]
    without = tokenizer(joined, padding="max_length", truncation=True, max_length=LENGTH)
    assert batch[0][:2].tolist() == without["input_ids"], "spaces between Chinese letters"


@pytest.fixture(scope="module")
def exact(folder: Path, batch: Any) -> dict[str, np.ndarray]:
    """Return logits, loss and gradients of transformers' model in float64."""
    model = transformers.BertForSequenceClassification.from_pretrained(folder).double().eval()
    x, y = (torch.from_numpy(part).long() for part in batch)
    out = model(input_ids=x, attention_mask=(x != 0).long(), labels=y)
    out.loss.backward()
    of = {name.removeprefix("bert."): p.grad.numpy() for name, p in model.named_parameters()}
    gradients = {"kind.bias": of[KIND][0]}
    assert not of[KIND][1].any()
    for layer, modules in (module_names(BLOCKS) | {"head": ["classifier"]}).items():
        for leaf in ("weight", "bias"):
            if f"{modules[0]}.{leaf}" in of:
                gradients[f"{layer}.{leaf}"] = np.concatenate([of[f"{m}.{leaf}"] for m in modules])
    gradients["position.weight"] = gradients["position.weight"][:LENGTH]
    assert sum(g.size for g in gradients.values()) == sum(g.size for g in of.values()) - 24 * 7
    named = {f"gradient/{name}": gradient for name, gradient in gradients.items()}
    return {"logits": out.logits.detach().numpy(), "loss": out.loss.detach().numpy(), **named}


@pytest.mark.parametrize("backend", ["numpy", "torch", "mindspore"])
def test_logits_and_all_gradients(folder: Path, exact: dict[str, np.ndarray], backend: str) -> None:
    if backend == "mindspore":
        pytest.importorskip("mindspore")
    script = Path(__file__).with_name("bert_gradients.py")
    command = [sys.executable, str(script), backend, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=os.environ)
    assert done.returncode == 0, done.stderr
    with np.load(folder / f"{backend}.npz", allow_pickle=False) as found:
        assert set(found.files) == set(exact)
        for name, wanted in exact.items():
            size = np.linalg.norm(wanted)
            assert size > 1e-6, name
            assert np.linalg.norm(found[name] - wanted) / size < ROUNDING[backend], name


def test_other_models_of_the_library(folder: Path, tmp_path: Path) -> None:
    """Other models of the library are read: names without ``bert.``, another dtype, no pooler."""
    whole = transformers.BertModel.from_pretrained(folder)
    whole.save_pretrained(tmp_path / "plain")
    plain, own = (PretrainedBert.open(at) for at in (tmp_path / "plain", folder))
    assert not plain.has_head(CLASSES)
    assert own.has_head(CLASSES)
    expected = own.weights(LENGTH, CLASSES)
    for name, array in plain.weights(LENGTH, CLASSES).items():
        assert (array == expected[name]).all(), name
    whole.to(torch.bfloat16).save_pretrained(tmp_path / "short")
    with pytest.raises(UserError, match=r"expected F32, found BF16; .* and 29 more; remedy: save "):
        PretrainedBert.open(tmp_path / "short").check_tensors()
    transformers.BertForMaskedLM.from_pretrained(folder).save_pretrained(tmp_path / "masked")
    with pytest.raises(UserError, match=r"pooler.dense.weight: expected \(24, 24\), found nothing"):
        PretrainedBert.open(tmp_path / "masked").check_tensors()


def test_updates_are_those_of_a_loop_by_hand(folder: Path, batch: Any) -> None:
    """Ten float32 updates equal those of transformers' model and torch's AdamW."""
    model = transformers.BertForSequenceClassification.from_pretrained(folder).train()
    x, y = (torch.from_numpy(part).long() for part in batch)
    rule = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    found = PretrainedBert.open(folder)
    training = (
        backends()["torch"]
        .create("cpu", 1)
        .training(
            TrainingSpec(
                spec=found.spec(LENGTH, CLASSES),
                weights=found.weights(LENGTH, CLASSES),
                rule=AdamW(lr=1e-3, weight_decay=0.01),
                x=batch[0],
                y=batch[1],
                updates=10,
            )
        )
    )
    losses = []
    for step in range(1, 11):
        rule.zero_grad()
        loss = model(input_ids=x, attention_mask=(x != 0).long(), labels=y).loss
        loss.backward()
        rule.step()
        ((own, _),) = training.step(np.arange(len(y)), step)
        losses.append(loss.item())
        assert own.item() == pytest.approx(losses[-1], rel=1e-4), step
    assert losses[-1] < 0.9 * losses[0], "learns"
