"""A small BERT in a folder, as Hugging Face's library saves one, without that library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from dualml.algorithms.model.pretrained import PretrainedBert

LETTERS = "我他妹老师同学很喜欢这里看电影写作业坐地铁，。一点也不"
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(LETTERS), "play", "##ing")
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "hidden_dropout_prob": 0.1,
}


def write(folder: Path, words: tuple[str, ...] = WORDS, classes: int = 0, **config: Any) -> Path:
    """Write a small BERT to a folder and return it; with ``classes`` it has a classification
    head."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    (folder / "model.safetensors").touch()
    shapes = PretrainedBert.open(folder).expected_shapes()
    if classes:
        shapes |= {"classifier.weight": (classes, 16), "classifier.bias": (classes,)}
    draw = np.random.default_rng(0)
    save_file(
        {
            name if name.startswith("classifier") else f"bert.{name}": tensor(draw, shape)
            for name, shape in shapes.items()
        },
        folder / "model.safetensors",
    )
    return folder


def tensor(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw.normal(0, 0.2, shape).astype(np.float32)


def change(folder: Path, **tensors: np.ndarray | None) -> None:
    """Replace tensors, named by the end of their names with ``__`` for dots; None removes one."""
    there = load_file(folder / "model.safetensors")
    for end, array in tensors.items():
        (name,) = (n for n in there if n.endswith(end.replace("__", ".")))
        del there[name]
        if array is not None:
            there[name] = array
    save_file(there, folder / "model.safetensors")
