"""A trial's data and evaluation around a method, which makes the updates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import Array, Arrays, MemoryReport, MemoryUsage, TrainingSpec, batch_digest
from dualml.experiment.methods import MethodInfo
from dualml.experiment.methods.config import without_planned_keys
from dualml.experiment.methods.engine import MethodTraining
from dualml.experiment.methods.skips import SkippedUpdates
from dualml_torch.algorithms.model import LOSSES, Network
from dualml_torch.algorithms.optim import RuleOptimizer, load_state, optimizer, state
from dualml_torch.algorithms.training import to_numpy
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod
from dualml_torch.experiment.methods.memory import measure_engine_memory


class TorchMethod(MethodTraining, MemoryReport):
    """PyTorch implementation of `dualml.experiment.methods.engine.MethodTraining`.

    Every trial makes its method anew: engines hold more than weights and state.
    """

    def __init__(
        self,
        make: type[TrainingMethod],
        info: MethodInfo,
        recipe: TrainingSpec,
        device: torch.device,
        comm: Communicator | None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.method_class, self.info, self.recipe, self.device = make, info, recipe, device
        self.config, self.method = without_planned_keys(config or {}), None
        self.ranks, self.step_count = 1 if comm is None else comm.size, 0
        if comm is not None:  # engines expect torchrun's variables
            for name, value in (("RANK", comm.rank), ("WORLD_SIZE", comm.size)):
                os.environ.setdefault(name, str(value))
                os.environ.setdefault(f"LOCAL_{name}", str(value))
        self.x = torch.from_numpy(recipe.x).to(device)
        self.y = torch.from_numpy(recipe.y).to(device)
        self.loss = LOSSES[recipe.loss]
        self.sharded, self.is_resumable = make.sharded, make.is_resumable
        self.full_batch_size = recipe.global_batch if info.prepared else 0
        self.reset(recipe.weights)

    def reset(self, weights: Mapping[str, Array]) -> None:
        """Close the current method, if any, and make it anew with these weights, before its first
        update; all ranks call it. The count of skipped updates begins again."""
        self.close()
        self.model = self.make_network(weights).train()
        self.eval_network = self.make_network(weights) if self.sharded else self.model
        given = MethodContext(
            model=self.model,
            optimizer=lambda parameters: optimizer(self.recipe.rule, parameters),
            criterion=self.loss,
            device=self.device,
            processes=self.ranks,
            samples=(torch.from_numpy(self.recipe.x), torch.from_numpy(self.recipe.y)),
            batch=self.recipe.global_batch,
            options=self.info.options,
            config=self.config,
        )
        self.method = self.method_class(given)
        self.processes, self.groups = self.method.processes, self.method.groups
        self.skips, self.has_loss_scale, self.has_stepped = (
            SkippedUpdates(),
            self.method.loss_scale is not None,
            False,
        )
        # Engines decide on the host whether they step: no synchronisation is added.
        self.arm_optimizer().register_step_post_hook(self.note_step)

    def close(self) -> None:
        """Release what the current method's engine holds; do nothing before the first `reset`."""
        if self.method is not None:
            self.method.close()

    def note_step(self, *_: Any) -> None:
        """Note that the optimizer has stepped; a hook of the arm's optimizer."""
        self.has_stepped = True

    def make_network(self, weights: Mapping[str, Array]) -> Network:
        """Make a network of the trial's model with these weights on the device, in training
        mode."""
        network = Network(self.recipe.spec).to(self.device)
        network.load(weights)
        return network

    def step(
        self, batch: Array, step: int, weight: float = 1.0
    ) -> list[tuple[torch.Tensor, float]]:
        """Make update ``step`` with this rank's samples ``batch``; return a list of one pair, their
        mean loss before it (of a pipeline that of all ranks), a detached tensor, and 1.0. All ranks
        call it. ``weight`` as in `TrainingMethod`."""
        return self.update(*self.batch_tensors(batch), step, weight)

    def steps_from_loader(
        self, batches: Sequence[Array], first: int
    ) -> Iterator[tuple[Array, list[tuple[torch.Tensor, float]]]]:
        """Yield this rank's sample positions in each global batch and [(its mean loss, a detached
        tensor, 1.0)], in the order of the engine's own loader; the update, numbered from ``first``,
        is made when its item is asked for. A rank's mean is weighted by its share of the batch."""
        dealt = self.method.load_batches(batches)
        for step, (index, x, y) in enumerate(dealt, start=first):
            part = index.cpu().numpy()
            weight = len(part) * self.ranks / len(batches[step - first])
            yield part, self.update((x, *self.draw_masks(part)), y, step, weight)

    def update(
        self, x: tuple[torch.Tensor, ...], y: torch.Tensor, step: int, weight: float
    ) -> list[tuple[torch.Tensor, float]]:
        """Make update ``step`` from the model's inputs and labels; return a list of one pair, the
        mean loss before it, a detached tensor, and 1.0. If the method scales its loss, note whether
        the update was skipped."""
        self.method.weight, self.has_stepped = weight, False
        loss = self.method.step(x, y)
        self.step_count = step
        if self.has_loss_scale:
            self.skips.note(self.has_stepped, self.loss_scale)
        return [(loss, 1.0)]

    def loss_scale(self) -> float:
        """Return the method's current loss scale, 1.0 if it has none."""
        return self.method.loss_scale or 1.0

    def batch_tensors(self, part: Array) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the model's inputs for these samples in the next update, the samples, then Dropout
        masks; and the labels."""
        index = torch.from_numpy(part).to(self.device)
        return (self.x.index_select(0, index), *self.draw_masks(part)), self.y.index_select(
            0, index
        )

    def draw_masks(self, part: Array) -> list[torch.Tensor]:
        """Draw the Dropout masks of these samples for the next update."""
        drawn = dropout_masks(
            self.recipe.spec, self.recipe.seed, self.step_count + 1, part
        ).values()
        return [torch.from_numpy(mask).to(self.device) for mask in drawn]

    def gather_shards(self) -> None:
        """Gather the parameters and load them into the evaluation network if they are sharded, for
        which all ranks call it; else do nothing."""
        if self.sharded:
            whole = self.method.gather_parameters(self.model)
            self.eval_network.load({name: to_numpy(tensor) for name, tensor in whole.items()})

    @torch.no_grad()
    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the digest of ``batch``, which is not run, and host copies of the evaluation
        network's layer outputs for the samples ``probe``; sharded weights are gathered first, for
        which all ranks call it after an update."""
        self.gather()
        index = torch.from_numpy(probe).to(self.device)
        activations = self.eval_network.activations(self.x.index_select(0, index))
        return batch_digest(*self.fetch_batch(batch)), {
            n: to_numpy(a) for n, a in activations.items()
        }

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return host copies of the samples and labels of a batch, without masks."""
        (x, *_), y = self.batch_tensors(batch)
        return to_numpy(x), to_numpy(y)

    @torch.no_grad()
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return mean loss and predicted classes of the evaluation network, all samples in one
        forward pass; sharded weights are those of the last `gather`."""
        self.eval_network.eval()
        logits = self.eval_network(torch.from_numpy(x).to(self.device))
        loss = float(self.loss(logits, torch.from_numpy(y).to(self.device)))
        self.eval_network.train()
        return loss, logits.argmax(dim=-1).cpu().numpy()

    def engine_evaluate(self, x: Array, y: Array) -> Array | None:
        """Let the engine test the samples, distributed by its own means; all ranks call it. Return
        rows (label, predicted class, mean loss of its part) of all ranks' parts, None if the method
        leaves that to dualml."""

        def predict(part: torch.Tensor) -> torch.Tensor:
            own = part.cpu().numpy()
            loss, predicted = self.evaluate(x[own], y[own])
            rows = [y[own], predicted, np.full(len(own), loss)]
            return torch.from_numpy(np.stack(rows, axis=1)).to(part.device)

        rows = self.method.engine_evaluate(predict, len(y))
        return None if rows is None else to_numpy(rows)

    def weights(self) -> Arrays:
        """Return host copies of the evaluation network's parameters, without running statistics, by
        canonical name; sharded ones are gathered first, for which all ranks call it after an
        update."""
        self.gather()
        return {name: to_numpy(p) for name, p in self.eval_network.canonical().items()}

    def state(self) -> dict[str, Arrays]:
        """Return optimizer state and skipped updates; no optimizer state if it is sharded or the
        method is not resumable."""
        skips = self.skips.state(self.loss_scale()) if self.has_loss_scale else {}
        if self.sharded or not self.is_resumable:
            return {**skips}
        return state(self.arm_optimizer(), list(self.model.canonical())) | skips

    def arm_optimizer(self) -> Any:
        """Return the `RuleOptimizer` that the method was given, from inside any wrappers of the
        engine."""
        inner = self.method.optimizer
        while not isinstance(inner, RuleOptimizer):
            inner = getattr(inner, "optimizer", None) or inner.optim
        return inner

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Measure this rank's memory during one more update with its part ``batch`` (repeated while
        the loss scaler skips it): all ranks call it, and `load` weights anew after it. Without a
        batch nothing is updated, gradients are 0 and activations None."""
        if batch is None:
            return measure_engine_memory(self.model, self.method, self.arm_optimizer())
        x, y = self.batch_tensors(batch)

        def update() -> bool:
            self.has_stepped = False
            self.method.step(x, y)
            return self.has_stepped

        return measure_engine_memory(self.model, self.method, self.arm_optimizer(), update, [*x, y])

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Make the method anew with ``weights``; all ranks call it. Restore skipped updates and,
        unless the method is sharded or not resumable, the optimizer state after update
        ``step``."""
        self.reset(weights)
        self.skips.load(state)
        if step and not self.sharded and self.is_resumable:
            load_state(self.arm_optimizer(), state, step, list(self.model.canonical()))
        self.step_count, self.gathered = step, -1

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the model's weights by ``fn`` of their host copies; optimizer and engine stay.
        Not for a method that shards the weights."""
        self.model.load(fn(self.weights()))
