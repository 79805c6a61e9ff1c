"""Single updates of a trial made again, every one from a given state: the side of a rank.

What is kept of update t, as ``t/PHASE/TENSOR``: ``data`` (x, y as the model got them), ``forward``
(every layer's output for all its samples), ``loss`` (of the batch, of this rank, of each
micro-batch), ``gradient`` (of this rank alone where ranks share the batch), ``aggregation`` (what
the ranks made of it), ``update`` (the weights after it) and ``state`` (the optimizer's). And how
far rounding moves each of them, measured as in `dualml.parity.envelope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualml.backend import Observable
from dualml.distance import distance
from dualml.parity.envelope import PLAIN, perturb
from dualml.store.replays import Arrays, States, read_start, read_states, write_side, write_states
from dualml.worker.setup import Setup

DRAWS = 3


@dataclass
class Replay:
    """Updates of one trial on one backend, as one of its ranks.

    Args:
        trial: made, not trained.
        beat: called now and then, as a sign of life.
    """

    trial: Setup
    beat: Callable[[], None]

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
        arrays: Arrays = {}
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
            arrays |= {f"{step}/{key}": np.ascontiguousarray(a) for key, a in base.items()}
        return arrays, widths

    def once(
        self, weights: Arrays, state: dict[str, Arrays], step: int, batch: Any, probe: Any = None
    ) -> Arrays:
        """Everything of one update.

        Args:
            probe: the batch whose activations are kept, where it is another order of ``batch``.
        """
        trial, training = self.trial, self.trial.training
        training.load(weights, state, step - 1)
        x, y = training.ability(Observable).given(batch)
        arrays = {"data/x": x, "data/y": y}
        samples = batch if probe is None else probe
        whole = samples if isinstance(samples, np.ndarray) else np.concatenate(samples)
        trace = training.trace(batch, whole)
        arrays |= {f"forward/{name}": value for name, value in trace.activations.items()}
        own = trial.ranks.own_gradient(batch)
        arrays |= {f"gradient/{name}": np.array(value) for name, value in own.items()}
        arrays |= {f"{trial.ranks.traced}/{name}": g for name, g in trace.gradients.items()}
        training.load(weights, state, step - 1)
        lazy = training.step(batch, step)
        losses = {"batch": trial.ranks.read([lazy]), **trial.ranks.own_loss(lazy)}
        arrays |= {f"loss/{part}": np.asarray(a, np.float64) for part, a in losses.items()}
        arrays |= {f"update/{name}": w for name, w in training.weights().items()}
        for slot, named in training.state().items():
            arrays |= {f"state/{slot}/{name}": np.asarray(a) for name, a in named.items()}
        self.beat()
        return arrays


def replay(
    trial: Setup,
    backend: str,
    steps: Sequence[int],
    leads: bool,
    folder: Path,
    beat: Callable[[], None],
) -> None:
    """This rank's side of ``steps``, left in ``folder`` under the backend's name.

    Args:
        leads: also make the states before these steps, from those the folder starts with; the
            others start from what the leader left.
    """  # fmt: skip
    updates, rank = Replay(trial, beat), trial.ranks.rank
    if leads:
        states: States = {}
        starts = read_start(folder)
        for first, start in starts.items():
            wanted = [s for s in steps if s >= first and not any(
                first < other <= s for other in starts)]  # fmt: skip
            chained = updates.chain(start, first, max(wanted))
            states |= {step: chained[step] for step in wanted}
        if rank == 0:
            write_states(folder, states)
    else:
        states = read_states(folder)
    draws = 0 if trial.backend.dtype == "float64" else DRAWS
    arrays, widths = updates.look(states, draws)
    write_side(folder, backend, rank, arrays, widths)
