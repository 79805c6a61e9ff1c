"""Run single blocks of one side: with its weights, with moved weights, forward and backward."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap, has_nan
from dualml.parity.models.lockstep.access import BlockAccess, Rebuild
from dualml.parity.models.lockstep.block_weights import BlockWeights
from dualml.parity.models.lockstep.structure import flatten
from dualml.parity.models.model_access import ModelAccess
from dualml.parity.models.recorder import Recorder
from dualml.parity.models.trace import iter_tensors

Arrays = dict[str, NDArray[Any]]


@dataclass
class BlockResult:
    """The result of one run of a block.

    Attributes:
        output: the output as the framework returned it.
        tensors: the tensors inside the output, in order.
        inner: name of an output of a module inside of the block → array, in execution order.
    """

    output: Any
    tensors: list[Any]
    inner: Arrays = field(default_factory=dict)


class BlockRunner:
    """Runs blocks (parts of a model with their own weights) one by one, and keeps no weights in
    between.

    Args:
        access: the framework's access to the blocks.
        recorder: recorder of the whole model.
        weights: makes the weights of a block.
        draws: number of repetitions with moved weights that measure rounding.
    """

    def __init__(
        self,
        access: BlockAccess,
        recorder: Recorder,
        weights: BlockWeights,
        draws: int,
    ) -> None:
        self.access, self.recorder = access, recorder
        self.weights, self.draws = weights, draws
        self.listener: Any = None

    @property
    def model(self) -> ModelAccess:
        """Access to the tensors of the model."""
        return self.recorder

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Within the context, hook the recorder's modules: each module's name and output go to
        `listener`, which `run` sets for the block that is running; ignored where it is None."""

        def pass_output(name: str, output: Any) -> None:
            """Call the current listener, if there is one, with a module's name and output."""
            if self.listener is not None:
                self.listener(name, output)

        with self.recorder.hook_modules(pass_output):
            yield

    def flatten_output(self, output: Any) -> tuple[list[Any], Any]:
        """Return the tensors inside a block's output, and the function that makes such an output of
        other tensors."""
        return flatten(output, self.model.is_tensor)

    def run(
        self,
        block: str,
        tensors: Sequence[Any],
        rebuild: Rebuild,
        calls: Counter[str] | None = None,
        draw: int | None = None,
    ) -> BlockResult:
        """Run a block once.

        Args:
            tensors: the tensors among its arguments.
            rebuild: makes the arguments of these tensors.
            calls: number of calls of each module so far, changed in place by this run; None:
                outputs of modules inside the block are not recorded, as outside of `hooked`.
            draw: number of the draw, from 0, whose units in the last place the weights are moved
                by; None: they are not moved.
        """
        inner: Arrays = {}
        weights = self.weights.make_block(block, draw)
        self.listener = None if calls is None else self.make_listener(inner, calls)
        try:
            with self.rounded(draw), self.recorder.watch_operations():
                output = self.access.run(block, weights, tensors, rebuild)
        finally:
            self.listener = None
        return BlockResult(output, self.flatten_output(output)[0], inner)

    def make_listener(self, inner: Arrays, calls: Counter[str]) -> Any:
        """Return a function of a module's name and output that adds the output's arrays to
        ``inner``, and counts the call in ``calls``."""

        def listen(name: str, output: Any) -> None:
            """Add the output of a module to ``inner``; from its second call on, with the number of
            the call."""
            calls[name] += 1
            title = name + (f"#{calls[name]}" if calls[name] > 1 else "")
            for tail, tensor in iter_tensors(output, self.model.is_tensor, title):
                inner[tail] = self.model.array(tensor)

        return listen

    @contextlib.contextmanager
    def rounded(self, draw: int | None) -> Iterator[None]:
        """Let functions that are computed approximately round differently inside the context; None
        changes nothing.

        Args:
            draw: number of the draw, from 0.
        """
        if draw is not None:
            rng = np.random.default_rng([self.recorder.seed, draw, 1])
            self.recorder.rounding = rng, 2**draw
        try:
            yield
        finally:
            self.recorder.rounding = None

    def move_inputs(self, tensors: Sequence[Any], draw: int) -> list[Any]:
        """Return the input tensors of a block, moved by units in the last place as weights are in
        this draw."""
        return [
            self.recorder.perturb_input(one, f"input {i}", draw) for i, one in enumerate(tensors)
        ]

    def measure_forward(
        self,
        block: str,
        tensors: Sequence[Any],
        rebuild: Rebuild,
        base: Mapping[str, NDArray[Any]],
        calls: Counter[str],
    ) -> dict[str, float]:
        """Return name → rounding envelope of each output of a block and of the modules inside of
        it: the largest distance that moved weights and inputs make.

        Args:
            base: the arrays of the run without moved weights, by name.
            calls: number of calls of each module before that run; not changed.
        """
        widths: dict[str, float] = {}
        for draw in range(self.draws):
            moved = self.move_inputs(tensors, draw)
            result = self.run(block, moved, rebuild, Counter(calls), draw)
            arrays = result.inner | self.name_outputs(result.tensors)
            widen(widths, base, arrays)
        return widths

    def name_outputs(self, tensors: Sequence[Any]) -> Arrays:
        """Return the output tensors of a block as arrays, ``output/0``, ``output/1``, …"""
        return {f"output/{i}": self.model.array(one) for i, one in enumerate(tensors)}

    def differentiate(
        self,
        block: str,
        tensors: Sequence[Any],
        rebuild: Rebuild,
        gradients: Sequence[Any],
        draw: int | None = None,
    ) -> Arrays:
        """Return the gradients of a block's trained parameters, ``parameter/NAME``, and of its
        inputs, ``input/0``, …, without inputs that have none. The arrays may share the memory of
        the framework's tensors.

        Args:
            gradients: gradients of the output tensors, None for those that have none.
            draw: number of the draw, from 0, that moves the weights; None: they are not moved.
        """
        weights = self.weights.make_block(block, draw)
        with self.rounded(draw), self.recorder.watch_operations():
            found, of_inputs = self.access.differentiate(
                block, weights, tensors, rebuild, gradients
            )
        del weights
        arrays = {f"parameter/{name}": self.model.view(one) for name, one in found.items()}
        places = enumerate(of_inputs)
        return arrays | {f"input/{i}": self.model.view(one) for i, one in places if one is not None}

    def measure_gradients(
        self,
        block: str,
        tensors: Sequence[Any],
        rebuild: Rebuild,
        gradients: Sequence[Any],
        base: Mapping[str, NDArray[Any]],
    ) -> dict[str, float]:
        """Return name → rounding envelope of each gradient of a block: the largest distance that
        moved weights and inputs make.

        Args:
            base: the gradients without moved weights, by name.
        """
        widths: dict[str, float] = {}
        for draw in range(self.draws):
            moved = self.move_inputs(tensors, draw)
            widen(widths, base, self.differentiate(block, moved, rebuild, gradients, draw))
        return widths


def widen(
    widths: dict[str, float],
    base: Mapping[str, NDArray[Any]],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Raise each width, in place, to the distance of an array from the one of this name in
    ``base``; names that ``base`` lacks, and those with NaN there, are left out."""
    for name, array in arrays.items():
        if name in base and not has_nan(kept := base[name]):
            widths[name] = max(widths.get(name, 0.0), gap(kept, array))
