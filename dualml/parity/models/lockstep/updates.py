"""Update the parameters of single blocks: with an optimizer of their own, from given gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.lockstep.pairs import PARAMETER
from dualml.parity.models.lockstep.runner import Arrays, BlockRunner, widen
from dualml.parity.models.recorder import is_finite_float

#: What the names of new weights begin with; states of an optimizer are ``state/SLOT/NAME``.
UPDATE, STATE = "update/", "state/"


class UpdateRunner:
    """Updates the parameters of a block once, and keeps neither weights nor optimizer.

    Args:
        runner: runner of the blocks, which has their weights.
        make_optimizer: makes an optimizer over the trained parameters of a model.
    """

    def __init__(self, runner: BlockRunner, make_optimizer: Callable[[Any], Any]) -> None:
        self.runner, self.make_optimizer = runner, make_optimizer

    def run(self, gradients: Mapping[str, NDArray[Any]], draw: int | None = None) -> Arrays:
        """Update copies of the parameters that have gradients once, by a new optimizer, and return
        the new weights, ``update/NAME``, and the optimizer's states, ``state/SLOT/NAME``; the
        arrays may share the memory of the framework's tensors. The model keeps its weights.

        Args:
            gradients: ``parameter/NAME`` → array; other arrays are left out.
            draw: number of the draw, from 0, that moves weights and gradients; None: they are not
                moved.
        """
        weights, recorder = self.runner.weights, self.runner.recorder
        arrays = {
            name.removeprefix(PARAMETER): array
            for name, array in gradients.items()
            if name.startswith(PARAMETER)
        }
        given = {
            name: weights.to_tensor(array if draw is None else self.move(array, name, draw))
            for name, array in arrays.items()
        }
        made = weights.make_weights(list(arrays), draw)
        with self.runner.access.updated(made, given, self.make_optimizer) as (model, optimizer):
            reader = type(recorder)(model, None, optimizer, steps=1)
            found = {UPDATE + name: reader.view(t) for name, t in reader.named_tensors().items()}
            for slot, values in reader.optimizer_state().items():
                for name, value in values.items():
                    array = reader.view(value) if reader.is_tensor(value) else np.asarray(value)
                    found[f"{STATE}{slot}/{name}"] = array
        return found

    def move(self, array: NDArray[Any], name: str, draw: int) -> NDArray[Any]:
        """Return a copy of a gradient moved by 2^draw units in the last place; zeros stay zero, and
        an array that is not of finite floats is returned unchanged."""
        if not is_finite_float(array):
            return array
        moved = np.array(array, np.float32)
        self.runner.weights.move_array(moved, draw, f"gradient {name}")
        moved[array == 0] = 0
        return moved

    def measure(
        self, gradients: Mapping[str, NDArray[Any]], base: Mapping[str, NDArray[Any]]
    ) -> dict[str, float]:
        """Return name → rounding envelope of new weights and states: the distance that moved
        weights and gradients make; empty without draws.

        Only the draw with the largest moves is made: rules such as Adam's act on every element
        alone, and one draw costs as much as the update.

        Args:
            base: the arrays of the run that moved nothing.
        """
        widths: dict[str, float] = {}
        if self.runner.draws:
            widen(widths, base, self.run(gradients, self.runner.draws - 1))
        return widths


def kind_prefix(name: str) -> str:
    """Return the beginning of the name of an array of `UpdateRunner.run`, up to the name of the
    parameter.

    Example:
        >>> kind_prefix("update/fc.weight"), kind_prefix("state/exp_avg/fc.weight")
        ('update/', 'state/exp_avg/')
    """
    words = name.split("/", 2)
    return UPDATE if words[0] == UPDATE.rstrip("/") else f"{STATE}{words[1]}/"
