"""An update of a tiny BERT against `transformers`' own model and its Trainer's optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from methods_task import CLASSES, LENGTH, SAMPLES, milliseconds, sentences

from dualml.algorithms.model import initial_weights
from dualml.algorithms.model.bert import BertSizes, bert
from dualml.algorithms.optim import AdamW
from dualml.backend import TrainingSpec
from dualml.common.seeds import make_generator
from dualml.interface.bench.timing import Times
from dualml_torch.backend import TorchBackend
from dualml_torch.experiment.data import import_torchvision

#: The vocabulary of bert-base-chinese, and the sizes of the smallest published BERT.
WORDS, BATCH, STEPS = 21128, 32, 8
THREADS = 2
#: Updates of a trial: too few to be worth compiling, and enough.
TRIALS = {"short": 100, "long": 100_000}
DROPOUTS = {"dropout 0.1": 0.1, "no dropout": 0.0}


def dualml_updates(dropout: float, updates: int, order: np.ndarray) -> Callable[[], None]:
    """Return a function that makes STEPS updates of a trial with ``updates``; ``order`` (updates,
    BATCH) are the samples."""
    x, y = sentences(WORDS)
    spec = bert(WORDS, LENGTH, CLASSES, BertSizes(dropout=dropout, head_dropout=dropout))
    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=AdamW(lr=1e-4, weight_decay=0.01),
        x=x,
        y=y,
        updates=updates,
        batch=BATCH,
        chunk=BATCH,
    )
    training, now = TorchBackend("cpu", THREADS).training(recipe), 0

    def call() -> None:
        nonlocal now
        for _ in range(STEPS):
            training.step(order[now % len(order)], now + 1)
            now += 1

    return call


def transformers_updates(dropout: float, order: np.ndarray) -> Callable[[], None]:
    """Return a function that makes STEPS updates of transformers' model."""
    import_torchvision()  # transformers would, plainly
    from transformers import BertConfig, BertForSequenceClassification

    sizes = BertSizes()
    model: Any = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            num_labels=CLASSES,
            hidden_size=sizes.width,
            num_hidden_layers=sizes.blocks,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.inner,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=0.0,  # as ours: no weights are dropped there
        )
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tokens, classes = (torch.from_numpy(a).long() for a in sentences(WORDS))
    batches, now = torch.from_numpy(order), 0

    def call() -> None:
        nonlocal now
        for _ in range(STEPS):
            batch = batches[now % len(batches)]
            ids = tokens[batch]
            optimizer.zero_grad()
            loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=classes[batch])
            loss.loss.backward()
            optimizer.step()
            now += 1

    return call


def updates(dropout: float, rounds: int) -> Times:
    """Return the milliseconds of an update: transformers', and ours by length of the trial."""
    draw = make_generator(0, "benchmark", "bert", "order")
    order = np.concatenate([draw.permutation(SAMPLES) for _ in range(4)]).reshape(-1, BATCH)
    calls = {name: dualml_updates(dropout, length, order) for name, length in TRIALS.items()}
    calls["theirs"] = transformers_updates(dropout, order)

    return milliseconds(calls, rounds, STEPS)
