"""What a rank does when the driver calls: stages of a model, and their optimizer.

Functions take a reference (`RRef`) to what lives here, as `rpc_sync` and `rpc_async` pass it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

from dualml.backend import Array, Arrays
from dualml.model.dropout import mask
from dualml.model.layers import Dropout
from dualml.model.spec import ModelSpec
from dualml.model.streams import Hidden
from dualml_torch.model.network import Part
from dualml_torch.optim import RuleOptimizer, load_state, state


class SubNetwork:
    """A stage on the rank that holds it.

    Args:
        names: its layers.
        seed: of the trial, for the masks of Dropout.
        lower: type of the products.
        streams: as of `Recipe.streams`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        names: Sequence[str],
        seed: int,
        lower: torch.dtype | None = None,
        streams: Array | None = None,
    ) -> None:
        layers = dict(spec.layers)
        self.spec, self.seed = spec, seed
        self.part = Part([(name, layers[name]) for name in names], lower)
        self.own = self.part.canonical()
        self.hidden = Hidden(self.part.layers, streams)
        #: Samples that went through, and the states they ended with.
        self.ended = list[tuple[Array, Arrays]]()
        self.turn = threading.Lock()  # the agent has several threads, a rank one processor

    def forward(self, x: torch.Tensor, step: int, samples: torch.Tensor | None) -> torch.Tensor:
        """The output, with its graph in the caller's context.

        Args:
            samples: their numbers, where the model has Dropout or stateful layers.
        """
        with self.turn:
            output: torch.Tensor = self.part((x,), self.masks(step, samples))[-1]
            if samples is not None and self.hidden.shapes:
                states = {name: state.numpy() for name, state in self.part.ended.items()}
                self.ended.append((samples.numpy(), states))
            return output

    def masks(self, step: int, samples: torch.Tensor | None) -> list[torch.Tensor]:
        if samples is None:
            return []
        shapes, index = self.spec.shapes(), samples.numpy()
        drawn = {
            name: mask(name, layer.rate, shapes[name], self.seed, step, index)
            for name, layer in self.part.layers
            if isinstance(layer, Dropout)
        }
        every = drawn | self.hidden.before(index)
        return [torch.from_numpy(every[name]) for name, _ in self.part.layers if name in every]

    def carry(self, keep: bool) -> None:
        """Keep the states that the samples of an update ended with, or forget them."""
        for samples, states in self.ended if keep else ():
            self.hidden.after(samples, states)
        self.ended.clear()

    def states(self) -> Arrays:
        """Stateful layer → the states of all streams."""
        return {name: table.copy() for name, table in self.hidden.tables.items()}

    def load_states(self, state: Mapping[str, Arrays]) -> None:
        """Take what is this stage's of the state of a training."""
        self.hidden.load(state)

    @torch.no_grad()
    def infer(self, x: torch.Tensor) -> torch.Tensor:
        """The output in evaluation mode."""
        output: torch.Tensor = self.part((x,))[-1]
        return output

    @torch.no_grad()
    def outputs(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Layer → its output in evaluation mode."""
        return {name: values[-1] for name, values in self.part.walk((x,))}

    def parameters(self) -> dict[str, Any]:
        """Canonical name → reference to the parameter here."""
        return {name: rpc.RRef(parameter) for name, parameter in self.own.items()}

    def gradients(self, context: int) -> Arrays:
        """What the backward passes of a context left here; zero where the loss does not reach."""
        gradients = dist_autograd.get_gradients(context)
        return {
            n: gradients.get(p, torch.zeros_like(p)).numpy().copy() for n, p in self.own.items()
        }

    def finite(self, context: int) -> bool:
        """Whether all numbers of the gradients that are here are."""
        own = dist_autograd.get_gradients(context)
        return all(bool(own[p].isfinite().all()) for p in self.own.values() if p in own)

    def unscale(self, context: int, scale: float) -> None:
        """Divide the gradients that are here by the scale of the loss, in place."""
        own = dist_autograd.get_gradients(context)
        if gradients := [own[p] for p in self.own.values() if p in own]:
            torch._foreach_mul_(gradients, 1 / scale)

    def weights(self) -> Arrays:
        """Copies."""
        return {name: p.detach().numpy().copy() for name, p in self.own.items()}

    def load(self, weights: Arrays) -> None:
        self.part.load(weights)


def call(stage: Any, method: str, *args: Any) -> Any:
    """A method of the sub-network here."""
    return getattr(stage.local_value(), method)(*args)


def _optimizer(local: Any) -> RuleOptimizer:
    """That of this rank, behind a reference of `DistributedOptimizer.remote_optimizers`."""
    optimizer: RuleOptimizer = local.local_value().optim
    return optimizer


def set_rate(local: Any, names: Sequence[str], lr: float) -> None:
    """From now on the optimizer here has this learning rate."""
    for group in _optimizer(local).param_groups:
        group["lr"] = lr


def state_of(local: Any, names: Sequence[str]) -> dict[str, Arrays]:
    """Slot → name → copy, of the parameters here."""
    return state(_optimizer(local), names)


def set_state(local: Any, names: Sequence[str], arrays: Mapping[str, Arrays], step: int) -> None:
    """Go to the point after update ``step``."""
    load_state(_optimizer(local), arrays, step, names)
