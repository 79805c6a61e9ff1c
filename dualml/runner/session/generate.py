"""Generate text from a run: a trained language model continues a prompt, without a framework.

The reference computes with the weights of a trial, whichever backend trained them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.zoo import TEXT_ZOO
from dualml.backend.reference.model import Model
from dualml.common.arrays import Arrays
from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonObject
from dualml.common.seeds import make_generator
from dualml.experiment.data import load_planned
from dualml.experiment.data.text import END, UNKNOWN, split_lines
from dualml.experiment.store.checkpoint import load_checkpoint
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import TrialRecord
from dualml.experiment.store.tensors import WEIGHTS, check_shape, read_weights

MAX_TOKENS = 100_000  # maximum number of tokens


@dataclass(frozen=True)
class GeneratedText:
    """A prompt continued by a trained model.

    Attributes:
        arm, backend, seed, updates: of the trial whose weights were used; ``updates`` is None if it
            did not end.
        prompt: as it was given.
        text: ``prompt`` and the continuation.
        unknown: words of the prompt that the model does not know.
    """

    arm: str
    backend: str
    seed: int
    prompt: str
    text: str
    unknown: tuple[str, ...] = ()
    updates: int | None = None

    def describe(self) -> JsonObject:
        """Return all fields as a dict."""
        return asdict(self)


def generate(
    folder: Path,
    *,
    arm: str | None = None,
    backend: str | None = None,
    prompt: str = "",
    length: int = 200,
    temperature: float = 1.0,
    seed: int = 0,
) -> GeneratedText:
    """Continue ``prompt`` by ``length`` tokens, each sampled from softmax(logits / temperature).

    Args:
        folder: of a run.
        arm, backend: of the trial; by default the first one that has weights.
        prompt: lines of text; an empty prompt is the begin of a line.
        length: number of tokens.
        temperature: 0 takes the most probable token every time.
        seed: of the sampling.

    Raises:
        UserError: no run folder, no trial with weights, a model that does not generate text, a
            number out of range, or data that is no longer available.
    """
    if not 1 <= length <= MAX_TOKENS:
        raise UserError(
            f"--length is a number of tokens from 1 to {MAX_TOKENS:,}; received {length:,}"
        )
    if not 0 <= temperature < math.inf:
        raise UserError(f"--temperature is a number from 0 on; received {temperature}")
    opened, plan = RunFolder.open(folder)
    arms = plan.experiment.arms
    if arm is not None and arm not in arms:
        raise UserError(f"{folder} has no arm {arm!r}{did_you_mean(arm, arms)}")
    trials = [t for t in opened.trials.values() if arm in (None, t.arm)]
    chosen = [t for t in trials if plan.spec_of(arms[t.arm]).name in TEXT_ZOO]
    if not chosen:
        names = dict.fromkeys(plan.spec_of(arms[t.arm]).name for t in trials)
        raise UserError(
            f"{folder}: {', '.join(names)} does not go on with a text; generate takes runs of "
            f"{', '.join(TEXT_ZOO)}"
        )
    known = list(dict.fromkeys(t.backend for t in chosen))
    if backend is not None and backend not in known:
        raise UserError(
            f"{folder}: no trial ran on backend {backend!r}{did_you_mean(backend, known)}"
        )
    chosen = [t for t in chosen if backend in (None, t.backend)]
    trial, spec, weights = find_trained_weights(
        opened, chosen, {t: plan.spec_of(arms[t]) for t in arms}
    )
    words, tokens = load_planned(plan.data).classes, plan.data.get("tokens", "words")
    lines, _ = split_lines(prompt, tokens)
    given = [word for line in lines for word in (END, *line)] or [END]
    number = {word: token for token, word in enumerate(words)}
    stream = [number.get(word, number[UNKNOWN]) for word in given]
    draw = make_generator(seed, "generate", trial.arm)
    added = generate_tokens(Model(spec, weights), stream, temperature, draw, length)
    more = [words[token] for token in added]
    unknown = tuple(dict.fromkeys(word for word in given if word not in number))
    text = join_lines([*given[1:], *more], "" if tokens == "characters" else " ")
    return GeneratedText(trial.arm, trial.backend, trial.seed, prompt, text, unknown, trial.updates)


def find_trained_weights(
    folder: RunFolder, trials: Sequence[TrialRecord], specs: dict[str, ModelSpec]
) -> tuple[TrialRecord, ModelSpec, Arrays]:
    """Return the first of the trials that has weights, its model, and the weights by name: the
    final ones, or else those of its last checkpoint.

    Args:
        folder: of the run.
        trials: the trials to look at, in this order.
        specs: arm → model.

    Raises:
        UserError: no trial has weights, or the weights belong to another model.
    """
    for trial in trials:
        place, spec = folder.trial_folder(trial.key), specs[trial.arm]
        if (place / WEIGHTS.name).exists():
            return trial, spec, read_weights(place, spec.parameters())
        if (checkpoint := load_checkpoint(place, 0)) is not None:
            weights = checkpoint[1]
            for name, shape in spec.parameters().items():
                if name not in weights:
                    raise UserError(f"{place}: the checkpoint has no {name}")
                check_shape(place, name, weights[name], shape)
            return trial, spec, weights
    states = ", ".join(f"{t.arm} on {t.backend}: {t.status}" for t in trials[:5])
    raise UserError(
        f"{folder.path}: no trial has weights ({states}); run it to its end with dualml run "
        f"--resume {folder.path}"
    )


def generate_tokens(
    model: Model,
    stream: Sequence[int],
    temperature: float,
    draw: np.random.Generator,
    length: int,
) -> list[int]:
    """Sample ``length`` tokens after the tokens ``stream``, and return only the new ones. The model
    sees as many preceding tokens as in training. Token 0, for unknown words, is never sampled."""
    (context,) = model.spec.input_shape
    seen = list(stream)
    window = np.zeros((1, context), np.int64)
    for _ in range(length):
        last = seen[-context:]
        window[0, : len(last)] = last
        logits = model.forward(window)[0][0, len(last) - 1]
        logits[0] = -np.inf  # the token of unknown words has no text
        seen.append(sample_token(logits, temperature, draw))
    return seen[len(stream) :]


def sample_token(logits: NDArray[np.float64], temperature: float, draw: np.random.Generator) -> int:
    """Sample one token from softmax(logits / temperature); the most probable one for temperature
    0."""
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore"):
        shares = np.exp((logits - logits.max()) / temperature)
    return int(draw.choice(len(shares), p=shares / shares.sum()))


def join_lines(words: Sequence[str], between: str) -> str:
    """Join words to lines of text, with ``between`` between the words; the word `END` ends a
    line."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word == END:
            lines.append([])
        else:
            lines[-1].append(word)
    return "\n".join(between.join(line) for line in lines)
