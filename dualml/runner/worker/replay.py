"""Replay single updates of a trial, each from a given state: the side of one rank.

Recorded for update t, under ``t/PHASE/TENSOR``: ``data`` (x, y as the model received them),
``forward`` (every layer's output for all samples), ``loss`` (of the batch, of this rank, of each
micro-batch), ``gradient`` (of this rank alone where ranks share the batch), ``aggregation`` (what
the ranks made of it), ``update`` (the weights after it) and ``state`` (the optimizer's). For each
of them the effect of rounding is measured as in `dualml.parity.envelope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.distance import distance
from dualml.experiment.store.replays import START, STATES, Arrays, States, write_replay
from dualml.parity.envelope import PLAIN, perturb
from dualml.runner.worker.setup import TrialSetup

DRAWS = 3


@dataclass
class TrialReplay:
    """Replays updates of one trial on one backend, as one of its ranks, which all call the same
    methods.

    Args:
        trial: the trial, set up but not trained.
        beat: called now and then, as a sign of life.
    """

    trial: TrialSetup
    beat: Callable[[], None]

    def collect_states(
        self, start: tuple[Arrays, dict[str, Arrays]], first: int, last: int
    ) -> States:
        """Train the updates ``first`` … ``last`` − 1 from ``start``, the weights and the optimizer
        state before the first, and return both as they are before each of ``first`` … ``last``."""
        trainer, states = self.trial.trainer, States()
        trainer.load(*start, first - 1)
        for step in range(first, last + 1):
            states[step] = (trainer.model.weights(), trainer.state())
            if step < last:
                trainer.step(self.trial.ranks.batch(step), step)
            self.beat()
        return states

    def replay_updates(self, states: States, draws: int) -> tuple[Arrays, dict[str, float]]:
        """Replay each update from its recorded state, unperturbed and with ``draws`` perturbations.

        Args:
            states: update → the weights and the optimizer state before it.
            draws: number of perturbed repetitions of each update.

        Returns:
            All tensors of each unperturbed update, under ``STEP/PHASE/TENSOR``; and, under the same
            keys, the width of the rounding envelope of each tensor but the data: the largest
            relative distance of a repetition. Keys ``plain …`` hold the width of the repetition
            that keeps the samples in their order. Without repetitions there are no widths.
        """
        arrays: Arrays = {}
        widths: dict[str, float] = {}
        self.trial.trainer.begin_draws()
        for step, (weights, state) in sorted(states.items()):
            batch = self.trial.ranks.batch(step)
            base = self.replay_update(weights, state, step, batch)
            for draw in range(draws):
                moved = perturb(weights, self.trial.seed, draw, step)
                mixed = batch
                if draw != PLAIN:
                    mixed = self.trial.ranks.shuffle(batch, self.trial.seed, draw, step)
                drawn = self.replay_update(dict(moved), state, step, mixed, batch)
                for key, value in drawn.items():
                    if key.startswith("data/") or base[key].shape != value.shape:
                        continue
                    name, width = f"{step}/{key}", distance(value, base[key])
                    widths[name] = max(widths.get(name, 0.0), width)
                    if draw == PLAIN:
                        widths[f"plain {name}"] = width
            arrays |= {f"{step}/{key}": np.ascontiguousarray(a) for key, a in base.items()}
        return arrays, widths

    def replay_update(
        self, weights: Arrays, state: dict[str, Arrays], step: int, batch: Any, probe: Any = None
    ) -> Arrays:
        """Replay one update and return all of its tensors, under keys ``PHASE/TENSOR``: ``data``,
        ``forward``, ``loss``, ``gradient``, ``update``, ``state``, and ``aggregation`` where ranks
        share the batch.

        Args:
            weights, state: before the update.
            step: number of the update, from 1.
            batch: sample indices.
            probe: the batch whose activations are recorded, where ``batch`` is shuffled.
        """
        trainer = self.trial.trainer
        trainer.load(weights, state, step - 1)
        x, y = trainer.fetch_batch(batch)
        arrays = {"data/x": x, "data/y": y}
        samples = batch if probe is None else probe
        whole = samples if isinstance(samples, np.ndarray) else np.concatenate(samples)
        trace = trainer.trace(batch, whole)
        arrays |= {f"forward/{name}": value for name, value in trace.activations.items()}
        own = trainer.local_gradient(batch)
        arrays |= {f"gradient/{name}": np.array(value) for name, value in own.items()}
        arrays |= {f"{trainer.traced_phase}/{name}": g for name, g in trace.gradients.items()}
        trainer.load(weights, state, step - 1)
        lazy = trainer.step(batch, step)
        losses = {"batch": trainer.mean_losses([lazy]), **trainer.local_losses(lazy)}
        arrays |= {f"loss/{part}": np.asarray(a, np.float64) for part, a in losses.items()}
        arrays |= {f"update/{name}": w for name, w in trainer.model.weights().items()}
        for slot, named in trainer.state().items():
            arrays |= {f"state/{slot}/{name}": np.asarray(a) for name, a in named.items()}
        self.beat()
        return arrays


def replay_updates(
    trial: TrialSetup,
    backend: str,
    steps: Sequence[int],
    leads: bool,
    folder: Path,
    beat: Callable[[], None],
) -> None:
    """Replay ``steps`` on this rank, and write the tensors to ``folder`` under the backend's name.

    All ranks call it. The rounding envelope is drawn unless the backend computes in float64.

    Args:
        trial: the trial, set up but not trained.
        backend: name under which the result is written.
        steps: numbers of the updates.
        leads: also compute the states before these steps, from those that the folder starts with,
            and write them (rank 0). Other backends read the states that the leading one wrote.
        folder: of the replay.
        beat: called now and then, as a sign of life.
    """
    updates, rank = TrialReplay(trial, beat), trial.ranks.rank
    if leads:
        states: States = {}
        starts = START.read_states(folder)
        for first, start in starts.items():
            wanted = [
                s for s in steps if s >= first and not any(first < other <= s for other in starts)
            ]
            chained = updates.collect_states(start, first, max(wanted))
            states |= {step: chained[step] for step in wanted}
        if rank == 0:
            STATES.write_states(folder, states)
    else:
        states = STATES.read_states(folder)
    draws = 0 if trial.backend.dtype == "float64" else DRAWS
    arrays, widths = updates.replay_updates(states, draws)
    write_replay(folder, backend, rank, arrays, widths)
