"""Single updates of a trial made again, every one from a given state: the side of a rank.

What is kept of update t, as ``t/PHASE/TENSOR``: ``data`` (x, y as the model got them), ``forward``
(every layer's output for all its samples), ``loss`` (of the batch, of this rank, of each
micro-batch), ``gradient`` (of this rank alone where ranks share the batch), ``aggregation`` (what
the ranks made of it), ``update`` (the weights after it) and ``state`` (the optimizer's). And how
far rounding moves each of them, measured as in `dualml.parity.envelope`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from dualml.aggregation.local_sgd import LocalSGD
from dualml.aggregation.parallel import DataParallel
from dualml.files import write_bytes, write_json
from dualml.parity.distance import distance
from dualml.parity.envelope import PLAIN, perturb
from dualml.runner.ranks import Group
from dualml.runner.split import SplitRanks
from dualml.runner.trial import Trial

Arrays = dict[str, NDArray[Any]]
States = dict[int, tuple[Arrays, dict[str, Arrays]]]
DRAWS = 3
#: Schemes whose ranks can each be asked for the gradient of their own samples.
ASKED = (DataParallel, LocalSGD)


def flatten(states: Mapping[int, tuple[Arrays, Mapping[str, Arrays]]]) -> Arrays:
    """Weights and state before updates, as the arrays of one file."""
    found: Arrays = {}
    for step, (weights, slots) in states.items():
        found |= {f"{step}|weights|{name}": np.asarray(w) for name, w in weights.items()}
        for slot, named in slots.items():
            found |= {f"{step}|state|{slot}|{name}": np.asarray(a) for name, a in named.items()}
    return {name: np.ascontiguousarray(a) for name, a in found.items()}


def unflatten(arrays: Mapping[str, NDArray[Any]]) -> States:
    found: States = {}
    for key, value in arrays.items():
        step, kind, *rest = key.split("|")
        weights, state = found.setdefault(int(step), ({}, {}))
        if kind == "weights":
            weights[rest[0]] = value
        else:
            state.setdefault(rest[0], {})[rest[1]] = value
    return found


class Replay:
    """Updates of one trial on one backend, as one of its ranks.

    Args:
        trial: made, not trained.
        beat: called now and then, as a sign of life.
    """

    def __init__(self, trial: Trial, beat: Callable[[], None]) -> None:
        self.trial, self.beat = trial, beat

    def chain(self, start: tuple[Arrays, dict[str, Arrays]], first: int, last: int) -> States:
        """Weights and state before each of the updates ``first`` … ``last``, from those before the
        first."""
        training, states = self.trial.training, States()
        training.load(*start, first - 1)
        for step in range(first, last + 1):
            states[step] = (training.weights(), training.state())
            if step < last:
                training.step(self.trial.ranks.batch(step), step)
            self.beat()
        return states

    def look(self, states: States, draws: int) -> tuple[Arrays, dict[str, float]]:
        """Everything of each update, and the widths of its envelopes; ``plain …`` are those of the
        draw that leaves the samples in their order."""
        found: Arrays = {}
        widths: dict[str, float] = {}
        self.trial.ranks.begin_draws()
        for step, (weights, state) in sorted(states.items()):
            batch = self.trial.ranks.batch(step)
            base = self.once(weights, state, step, batch)
            for draw in range(draws):
                moved = perturb(weights, self.trial.seed, draw, step)
                mixed = batch
                if draw != PLAIN:
                    mixed = self.trial.ranks.shuffle(batch, self.trial.seed, draw, step)
                drawn = self.once(dict(moved), state, step, mixed, batch)
                for key, value in drawn.items():
                    if key.startswith("data/") or base[key].shape != value.shape:
                        continue
                    name, width = f"{step}/{key}", distance(value, base[key])
                    widths[name] = max(widths.get(name, 0.0), width)
                    if draw == PLAIN:
                        widths[f"plain {name}"] = width
            found |= {f"{step}/{key}": np.ascontiguousarray(a) for key, a in base.items()}
        return found, widths

    def once(
        self, weights: Arrays, state: dict[str, Arrays], step: int, batch: Any, probe: Any = None
    ) -> Arrays:
        """Everything of one update.

        Args:
            probe: the batch whose activations are kept, where it is another order of ``batch``.
        """
        trial, training = self.trial, self.trial.training
        training.load(weights, state, step - 1)
        x, y = training.given(batch)
        found = {"data/x": x, "data/y": y}
        samples = batch if probe is None else probe
        whole = samples if isinstance(samples, np.ndarray) else np.concatenate(samples)
        seen = training.trace(batch, whole)
        found |= {f"forward/{name}": value for name, value in seen.activations.items()}
        group = isinstance(trial.ranks, Group)
        phase = "aggregation" if group else "gradient"
        if group and type(trial.ranks.parallel) in ASKED:  # type: ignore[attr-defined]
            found |= self.own_gradient(batch)
        found |= {f"{phase}/{name}": value for name, value in seen.gradients.items()}
        training.load(weights, state, step - 1)
        lazy = training.step(batch, step)
        found |= self.losses(lazy)
        found |= {f"update/{name}": w for name, w in training.weights().items()}
        for slot, named in training.state().items():
            found |= {f"state/{slot}/{name}": np.asarray(a) for name, a in named.items()}
        self.beat()
        return found

    def own_gradient(self, batch: Any) -> Arrays:
        """Of this rank's samples, as it enters the aggregation."""
        ranks: Any = self.trial.ranks
        part, _, factor = ranks.parallel.deal(batch)
        _, gradients = ranks.pieces.gradient(part, factor)
        named = ranks.pieces.named(gradients)
        return {f"gradient/{name}": np.array(value) for name, value in named.items()}

    def losses(self, lazy: Any) -> Arrays:
        """Of the whole batch, and of what this rank alone worked on."""
        ranks: Any = self.trial.ranks
        found = {"loss/batch": np.asarray(ranks.read([lazy]), np.float64)}
        if isinstance(ranks, SplitRanks) and lazy and hasattr(ranks.training.stage, "lazy"):
            stage, backend = ranks.training.stage, self.trial.backend
            each = [backend.read([stage.lazy([one])])[0] / one[1] for one in lazy]
            found["loss/micro-batches"] = np.array(each, np.float64)
        elif isinstance(ranks, Group) and lazy[0] is not None:
            found["loss/rank"] = np.asarray(self.trial.backend.read([lazy[0]]), np.float64)
        return found


def replay(trial: Trial, job: Mapping[str, Any], folder: Path, beat: Callable[[], None]) -> None:
    """Do what job.json asks for; leaves ``rankR.safetensors`` and ``rankR.json`` in ``folder``, and
    of the backend that leads the states, ``states.safetensors``.

    Args:
        job: ``start``, ``first``, ``steps``, ``leads``, ``out``.
    """
    made, rank = Replay(trial, beat), trial.ranks.rank
    place = folder / job["out"]
    place.mkdir(parents=True, exist_ok=True)
    given = unflatten(load_file(folder / "start.safetensors"))
    if job["leads"]:
        states: States = {}
        for first, start in given.items():
            wanted = [s for s in job["steps"] if s >= first and not any(
                first < other <= s for other in given)]  # fmt: skip
            chained = made.chain(start, first, max(wanted))
            states |= {step: chained[step] for step in wanted}
        if rank == 0:
            write_bytes(folder / "states.safetensors", save(flatten(states)))
    else:
        states = unflatten(load_file(folder / "states.safetensors"))
    draws = 0 if trial.backend.dtype == "float64" else DRAWS
    found, widths = made.look(states, draws)
    write_bytes(place / f"rank{rank}.safetensors", save(found))
    write_json(place / f"rank{rank}.json", {"widths": widths})


def steps_of(after: int, first: int, updates: int) -> Sequence[int]:
    """The updates to look at for a difference first seen at update ``first``, where update
    ``after`` is the last one known to agree: the very first, those after the common state, and
    those that made what was seen."""
    near = {
        *range(after + 1, min(after + 3, first) + 1),
        *range(max(after + 1, first - 2), first + 1),
    }
    return sorted(s for s in {1, 2, 3} | near if 1 <= s <= updates and (s <= first or s <= 3))
