"""Functions that run students' loaders of all ranks and pack the numbers of their samples."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dualml.common.json_types import JsonMapping, JsonObject
from dualml.course.drive_lab3 import advance_global_rng, global_rng_state

#: Function that makes a loader of (rank, seed).
Maker = Callable[[int, int], Any]
Batches = list[Any]


class SampleReader:
    """Reader of a loader's batches as numbers of samples.

    Args:
        x, y: the data (n, 2) and (n,), without two equal samples.
        to_array: function that converts a batch's tensor to an array, and raises `TypeError` for
            anything else.
    """

    def __init__(self, x: Any, y: Any, to_array: Callable[[Any], Any]) -> None:
        self.numbers = {float(value): i for i, value in enumerate(x[:, 0])}
        self.labels = {int(value): i for i, value in enumerate(y)}
        self.to_array, self.unpaired = to_array, 0

    def read(self, loop: Any) -> Batches:
        """Return the sample numbers of each batch, −1 for a row that is no sample; add the number
        of rows whose label is another sample's to ``unpaired``.

        Raises:
            TypeError: a batch has other shapes than (b, 2) and (b,).
        """
        out = []
        for batch in loop:
            x, y = batch
            rows, labels = self.to_array(x), self.to_array(y)
            if rows.ndim != 2 or labels.shape != rows.shape[:1]:
                raise TypeError(
                    f"expected a batch of shapes (b, 2) and (b,), received {tuple(rows.shape)} "
                    f"and {tuple(labels.shape)}"
                )
            numbers = np.array([self.numbers.get(float(r), -1) for r in rows[:, 0]], np.int64)
            own = [self.labels.get(int(label), -1) for label in labels]
            self.unpaired += int(np.sum(numbers != np.array(own, np.int64)))
            out.append(numbers)
        return out


def pack_loops(loops: Sequence[Batches]) -> dict[str, Any]:
    """Pack loops over loaders: ``values`` of all batches, concatenated; ``sizes`` of the batches;
    ``counts`` of the batches of each loop."""
    batches = [batch for loop in loops for batch in loop]
    return {
        "values": np.concatenate([*batches, np.zeros(0, np.int64)]).astype(np.int64),
        "sizes": np.array([len(batch) for batch in batches], np.int64),
        "counts": np.array([len(loop) for loop in loops], np.int64),
    }


def run_loaders(make: Maker, reader: SampleReader, options: JsonMapping, more: Any) -> JsonObject:
    """Run loaders of all ranks and seeds, and pack their samples.

    Args:
        make: function that makes a loader.
        options: ``asks``, (rank, seed); ``epochs``; ``resumed``, (epoch, batches before the state
            is taken), empty unless the state is tried.
        more: function that returns the state of the framework's global generator.

    Returns:
        Loops as `pack_loops` packs them, with the keys ``first/…`` and ``again/…`` for two loops
        over a loader, ``fresh/…`` for one over a loader that was made for the epoch; ``lengths``,
        the values of ``len``; ``unpaired``, the number of rows with another sample's label;
        ``touched``, whether a global generator was changed; and the result of `resume_loaders`.
    """
    loops: dict[str, list[Batches]] = {name: [] for name in ("first", "again", "fresh")}
    lengths = []
    before = (advance_global_rng(), random.getstate(), more())
    for rank, seed in options["asks"]:
        loader = make(rank, seed)
        for epoch in options["epochs"]:
            loader.set_epoch(epoch)
            fresh = make(rank, seed)
            fresh.set_epoch(epoch)
            for name, source in (("first", loader), ("again", loader), ("fresh", fresh)):
                loops[name].append(reader.read(source))
            lengths.append(len(loader))
    resumed = resume_loaders(make, reader, options) if options["resumed"] else {}
    touched = (global_rng_state(), random.getstate(), more()) != before
    out: dict[str, Any] = {"lengths": np.array(lengths, np.int64), "touched": np.array(touched)}
    for name, found in loops.items():
        out |= {f"{name}/{key}": a for key, a in pack_loops(found).items()}
    return {**out, "unpaired": np.array(reader.unpaired), **resumed}


def resume_loaders(make: Maker, reader: SampleReader, options: JsonMapping) -> JsonObject:
    """Take the state of loaders in the middle of an epoch, and continue others from it.

    Returns:
        Loops as `pack_loops` packs them: ``kept/…``, the rest of the loop in which the state was
        taken; ``rest/…`` and ``whole/…``, the first and second loop of a loader that got the state;
        ``reset/…``, the first loop of one that got the state and then the epoch; ``next/…``, its
        loop over the next epoch. ``state`` is the number of characters of each state as JSON.

    Raises:
        TypeError: a state cannot be written as JSON.
    """
    names = ("kept", "rest", "whole", "reset", "next")
    loops: dict[str, list[Batches]] = {name: [] for name in names}
    characters = []
    for rank, seed in options["asks"]:
        for epoch, after in options["resumed"]:
            loader = make(rank, seed)
            loader.set_epoch(epoch)
            loop = iter(loader)
            reader.read(islice(loop, after))
            state = loader.state_dict()
            loops["kept"].append(reader.read(loop))
            text = json.dumps(state)
            characters.append(len(text))
            for again in (False, True):
                other = make(rank, seed)
                other.load_state_dict(json.loads(text))
                if again:
                    other.set_epoch(epoch)
                loops["reset" if again else "rest"].append(reader.read(other))
                if again:
                    other.set_epoch(epoch + 1)
                loops["next" if again else "whole"].append(reader.read(other))
    out: dict[str, Any] = {"state": np.array(characters, np.int64)}
    for name, found in loops.items():
        out |= {f"{name}/{key}": a for key, a in pack_loops(found).items()}
    return out
