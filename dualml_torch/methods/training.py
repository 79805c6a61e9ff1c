"""A trial's data and evaluation around a method, which makes the updates."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dualml.backend import Array, Arrays, Memory, Recipe, Weighable, batch_digest
from dualml.communicator import Communicator
from dualml.methods import MethodInfo
from dualml.methods.config import handed_on
from dualml.methods.driven import MethodTraining
from dualml.methods.skips import Skips
from dualml.model.dropout import masks
from dualml_torch.methods.base import Base, Given
from dualml_torch.methods.held import memory
from dualml_torch.model import LOSSES, Network
from dualml_torch.optim import RuleOptimizer, load_state, optimizer, state
from dualml_torch.training import numpy


class TorchMethod(MethodTraining, Weighable):
    """PyTorch implementation of `dualml.methods.engine.MethodTraining`.

    Every trial makes its method anew: engines hold more than weights and state.
    """

    def __init__(
        self,
        make: type[Base],
        info: MethodInfo,
        recipe: Recipe,
        device: torch.device,
        comm: Communicator | None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.make, self.info, self.recipe, self.device = make, info, recipe, device
        self.config, self.method = handed_on(config or {}), None
        self.ranks, self.now = 1 if comm is None else comm.size, 0
        if comm is not None:  # engines expect torchrun's variables
            for name, value in (("RANK", comm.rank), ("WORLD_SIZE", comm.size)):
                os.environ.setdefault(name, str(value))
                os.environ.setdefault(f"LOCAL_{name}", str(value))
        self.x = torch.from_numpy(recipe.x).to(device)
        self.y = torch.from_numpy(recipe.y).to(device)
        self.loss = LOSSES[recipe.loss]
        self.sharded, self.keeps = make.sharded, make.keeps
        self.prepared = recipe.global_batch if info.prepared else 0
        self.begin(recipe.weights)

    def begin(self, weights: Mapping[str, Array]) -> None:
        """Make the method anew with these weights, before its first update."""
        self.close()
        self.model = self.network(weights).train()
        self.seen = self.network(weights) if self.sharded else self.model
        given = Given(
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
        self.method = self.make(given)
        self.processes, self.groups = self.method.processes, self.method.groups
        self.skips, self.scaled, self.made = Skips(), self.method.scale is not None, False
        # Engines decide on the host whether they step: no synchronisation is added.
        self.own().register_step_post_hook(self.stepped)

    def close(self) -> None:
        if self.method is not None:
            self.method.close()

    def stepped(self, *_: Any) -> None:
        """Note that the optimizer has stepped; a hook of the arm's optimizer."""
        self.made = True

    def network(self, weights: Mapping[str, Array]) -> Network:
        """Make a network with these weights on the device."""
        network = Network(self.recipe.spec).to(self.device)
        network.load(weights)
        return network

    def step(
        self, batch: Array, step: int, weight: float = 1.0
    ) -> list[tuple[torch.Tensor, float]]:
        return self.update(*self.tensors(batch), step, weight)

    def loaded(
        self, batches: Sequence[Array], first: int
    ) -> Iterator[tuple[Array, list[tuple[torch.Tensor, float]]]]:
        dealt = self.method.load(batches)
        for step, (index, x, y) in enumerate(dealt, start=first):
            part = index.cpu().numpy()
            weight = len(part) * self.ranks / len(batches[step - first])
            yield part, self.update((x, *self.drawn(part)), y, step, weight)

    def update(
        self, x: tuple[torch.Tensor, ...], y: torch.Tensor, step: int, weight: float
    ) -> list[tuple[torch.Tensor, float]]:
        """Make one update from the model's inputs and labels; return the lazy loss."""
        self.method.weight, self.made = weight, False
        loss = self.method.step(x, y)
        self.now = step
        if self.scaled:
            self.skips.note(self.made, self.scale)
        return [(loss, 1.0)]

    def scale(self) -> float:
        return self.method.scale or 1.0

    def tensors(self, part: Array) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the model's inputs for these samples in the next update, and their labels."""
        index = torch.from_numpy(part).to(self.device)
        return (self.x.index_select(0, index), *self.drawn(part)), self.y.index_select(0, index)

    def drawn(self, part: Array) -> list[torch.Tensor]:
        """Draw the Dropout masks of these samples for the next update."""
        drawn = masks(self.recipe.spec, self.recipe.seed, self.now + 1, part).values()
        return [torch.from_numpy(mask).to(self.device) for mask in drawn]

    def gather(self) -> None:
        if self.sharded:
            whole = self.method.whole(self.model)
            self.seen.load({name: numpy(tensor) for name, tensor in whole.items()})

    @torch.no_grad()
    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        index = torch.from_numpy(probe).to(self.device)
        activations = self.seen.activations(self.x.index_select(0, index))
        return batch_digest(*self.given(batch)), {n: numpy(a) for n, a in activations.items()}

    def given(self, batch: Array) -> tuple[Array, Array]:
        (x, *_), y = self.tensors(batch)
        return numpy(x), numpy(y)

    @torch.no_grad()
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        self.seen.eval()
        logits = self.seen(torch.from_numpy(x).to(self.device))
        loss = float(self.loss(logits, torch.from_numpy(y).to(self.device)))
        self.seen.train()
        return loss, logits.argmax(dim=-1).cpu().numpy()

    def tested(self, x: Array, y: Array) -> Array | None:
        def predict(part: torch.Tensor) -> torch.Tensor:
            own = part.cpu().numpy()
            loss, predicted = self.evaluate(x[own], y[own])
            rows = [y[own], predicted, np.full(len(own), loss)]
            return torch.from_numpy(np.stack(rows, axis=1)).to(part.device)

        rows = self.method.tested(predict, len(y))
        return None if rows is None else numpy(rows)

    def weights(self) -> Arrays:
        return {name: numpy(p) for name, p in self.seen.canonical().items()}

    def state(self) -> dict[str, Arrays]:
        skips = self.skips.state(self.scale()) if self.scaled else {}
        if self.sharded or not self.keeps:
            return {**skips}
        return state(self.own(), list(self.model.canonical())) | skips

    def own(self) -> Any:
        """Return the arm's optimizer, inside of any wrappers of the engine."""
        inner = self.method.optimizer
        while not isinstance(inner, RuleOptimizer):
            inner = getattr(inner, "optimizer", None) or inner.optim
        return inner

    def memory(self, batch: Array | None = None) -> Memory:
        """Measure the memory during one more update, after which the method must begin anew."""
        if batch is None:
            return memory(self.model, self.method, self.own())
        x, y = self.tensors(batch)

        def update() -> bool:
            self.made = False
            self.method.step(x, y)
            return self.made

        return memory(self.model, self.method, self.own(), update, [*x, y])

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.begin(weights)
        self.skips.load(state)
        if step and not self.sharded and self.keeps:
            load_state(self.own(), state, step, list(self.model.canonical()))
        self.now = step

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self.model.load(by(self.weights()))
