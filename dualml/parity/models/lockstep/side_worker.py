"""One side of a comparison block by block: its model without weights, its batch, its passes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.common.json_types import JsonObject
from dualml.launch.child import Emitter
from dualml.parity.models.lockstep.access import BlockFramework
from dualml.parity.models.lockstep.block_weights import BlockWeights, WeightSettings
from dualml.parity.models.lockstep.exchange import RecordFolder
from dualml.parity.models.lockstep.leading import ModelPass
from dualml.parity.models.lockstep.plan import ModelOutline
from dualml.parity.models.lockstep.runner import BlockRunner
from dualml.parity.models.lockstep.updates import UpdateRunner
from dualml.parity.models.model_ref import error_reason
from dualml.parity.models.recorder import Recorder
from dualml.parity.models.sides import DTYPE, PRECISIONS
from dualml.parity.models.worker import (
    ModelBackend,
    load_inputs,
    make_loss,
    make_side_optimizer,
    prepare_model,
    set_search_path,
)

#: Length of a framework's error in an error of ours.
MAX_REASON = 160


class SideWorker:
    """The work of one side of a comparison block by block; making it builds the side's model
    without memory for weights.

    Args:
        folder: folder of the comparison, with its ``job.json``.
        letter: ``a`` or ``b``.
        emit: called to report progress.
    """

    def __init__(self, folder: Path, letter: str, emit: Emitter) -> None:
        self.folder, self.letter, self.emit = folder, letter, emit
        self.job: JsonObject = read_json(folder / "job.json")
        self.own: JsonObject = self.job["sides"][letter]
        self.labels = self.job["sides"]["a"]["label"], self.job["sides"]["b"]["label"]
        set_search_path(self.job, self.own)
        package = self.own["package"]
        self.backend: ModelBackend = importlib.import_module(f"{package}.models")
        framework: BlockFramework = importlib.import_module(f"{package}.parity.blocks")
        with framework.building_empty():
            note = folder / f"{letter}.framework"
            self.model, _ = prepare_model(self.backend, self.job, self.own, note)
        self.access = framework.BlockAccess(self.model, self.own["dtype"])
        self.recorder: Recorder = self.backend.Recorder(
            self.model, None, steps=1, draws=self.job["draws"], seed=self.job["seed"]
        )
        self.recorder.precision = PRECISIONS[self.own["dtype"]]
        self.exchange = RecordFolder(folder / "exchange", self.job["timeout"])
        self.inputs = self.load_batch()
        self.current: ModelPass | None = None
        self.done = 0

    @property
    def has_gradients(self) -> bool:
        """Whether the side has a loss, and so a backward pass."""
        return bool(self.own["loss"] != "none")

    def describe_outline(self) -> ModelOutline:
        """Return the modules, tensors and shared parameters of the model."""
        shared = self.access.shared_parameters()
        return ModelOutline(self.recorder.modules(), self.recorder.tensors(), shared)

    def load_batch(self) -> list[Any]:
        """Return the inputs and, if there are any, the targets as last entry, on the side's device
        and in its dtype."""
        tensors = load_inputs(self.backend, self.job, self.own, self.folder)
        return [self.cast(one) for one in tensors]

    def cast(self, tensor: Any) -> Any:
        """Return a tensor on the side's device; floating-point numbers get its dtype."""
        return self.backend.move(tensor, self.own["device"], self.own["dtype"])

    def make_tensor(self, array: NDArray[Any]) -> Any:
        """Return an array as a tensor on the side's device; floating-point numbers get its
        dtype."""
        tensor = self.backend.tensor(array)
        plain = self.own["dtype"] == DTYPE and self.own["device"] == "cpu"
        return tensor if plain else self.cast(tensor)

    def make_runner(self, source: Mapping[str, NDArray[Any]]) -> BlockRunner:
        """Return the runner of this side's blocks with the weights in ``source``, by parameter
        name."""
        settings = WeightSettings(self.job["seed"], self.job["precision"], self.own["dtype"])
        trained = {one.name for one in self.recorder.tensors() if one.trained}
        empty = self.access.empty_parameters()
        weights = BlockWeights(source, empty, trained, self.make_tensor, settings)
        return BlockRunner(self.access, self.recorder, weights, self.job["draws"])

    def make_updates(self, runner: BlockRunner) -> UpdateRunner | None:
        """Return the runner of parameter updates; None if the side has no optimizer."""
        if self.own["optimizer"] is None:
            return None
        return UpdateRunner(runner, partial(make_side_optimizer, self.backend, self.own))

    def load_outside(self, runner: BlockRunner, blocks: Sequence[str], draw: int | None) -> None:
        """Load the parameters that lie in none of ``blocks`` into the model, moved by units in the
        last place if ``draw`` is the number of a draw, from 0, and not None."""
        names = runner.weights.outside_names(blocks)
        self.access.load(runner.weights.make_weights(names, draw))

    def intercept(self, blocks: Sequence[str]) -> None:
        """Replace all calls of the blocks, from now on, by calls of the pass that is running
        (`current`), and report progress at each."""

        def make_call(block: str, tensors: Sequence[Any], rebuild: Any) -> Any:
            """Report progress and return the next call of a block."""
            assert self.current is not None
            self.done += 1
            self.emit(phase="blocks", done=self.done, total=0)
            return self.current.make_call(block, tensors, rebuild)

        for block in blocks:
            self.access.intercept(block, make_call, differentiated=self.has_gradients)

    def run_pass(
        self,
        current: ModelPass,
        at_end: Callable[[], None] = lambda: None,
        *,
        forward_only: bool = False,
        draw: int | None = None,
    ) -> tuple[Any, dict[str, Any]] | None:
        """Run the model on the side's batch once; blocks are called through ``current``.

        Args:
            at_end: called when the forward pass has ended, before the loss.
            forward_only: make no backward pass, even with a loss.
            draw: number of the draw, from 0, that moves the model's inputs; None: they are not
                moved.

        Returns:
            The loss, and the gradients of parameters outside of blocks; None for a forward pass.

        Raises:
            UserError: a parameter of a block is used outside of it.
        """
        self.current, targets = current, self.inputs[-1] if self.job["targets"] else None
        inputs = self.inputs[:-1] if self.job["targets"] else self.inputs
        if draw is not None:
            inputs = current.runner.move_inputs(inputs, draw)
        loss = make_loss(self.backend, self.own["loss"])

        def end_forward(outputs: Any, given: Any) -> Any:
            """Call ``at_end``, and return the loss."""
            at_end()
            assert loss is not None
            return loss(outputs, given)

        try:
            with current.runner.hooked(), self.recorder.watch_operations():
                if loss is not None and not forward_only:
                    return self.access.step(end_forward, inputs, targets)
                self.access.forward(inputs)
            at_end()
            return None
        except Exception as error:
            if self.access.is_missing_weight(error):
                reason = error_reason(error)[:MAX_REASON]
                raise UserError(
                    "a parameter of a block is used outside of the call of this block, where its "
                    f"weights are not loaded ({reason}); name blocks without it with --blocks: the "
                    "rest stays in memory"
                ) from None
            raise
