"""The serving side of RPC: stages of a model and their optimizer, called by the driver.

Functions take a reference (`RRef`) to a local object, as `rpc_sync` and `rpc_async` pass it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

from dualml.algorithms.model.dropout import dropout_mask
from dualml.algorithms.model.layers import Dropout
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.streams import HiddenStates
from dualml.backend import Array, Arrays
from dualml_torch.algorithms.model.network import ModelPart
from dualml_torch.algorithms.optim import RuleOptimizer, load_state, state


class SubNetwork:
    """A stage on the rank that holds it.

    Args:
        names: its layers.
        seed: seed of the trial, for Dropout masks.
        lower: type of the products.
        streams: see `TrainingSpec.streams`.
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
        self.part = ModelPart([(name, layers[name]) for name in names], lower)
        self.parameters_by_name = self.part.canonical()
        self.hidden = HiddenStates(self.part.layers, streams)
        #: Samples of each pass and their final states.
        self.final_states = list[tuple[Array, Arrays]]()
        self.lock = threading.Lock()  # several agent threads share one processor

    def forward(self, x: torch.Tensor, step: int, samples: torch.Tensor | None) -> torch.Tensor:
        """Return the stage's output for ``x`` in update ``step``, with its graph in the caller's
        context; keep the final hidden states until `carry`.

        Args:
            samples: indices of the samples, if the model has Dropout or stateful layers.
        """
        with self.lock:
            output: torch.Tensor = self.part((x,), self.masks(step, samples))[-1]
            if samples is not None and self.hidden.shapes:
                states = {name: state.numpy() for name, state in self.part.final_states.items()}
                self.final_states.append((samples.numpy(), states))
            return output

    def masks(self, step: int, samples: torch.Tensor | None) -> list[torch.Tensor]:
        """Return Dropout masks and initial states of some samples in update ``step``, in the order
        of the layers; an empty list if ``samples`` is None."""
        if samples is None:
            return []
        shapes, index = self.spec.shapes(), samples.numpy()
        drawn = {
            name: dropout_mask(name, layer.rate, shapes[name], self.seed, step, index)
            for name, layer in self.part.layers
            if isinstance(layer, Dropout)
        }
        every = drawn | self.hidden.initial_states(index)
        return [torch.from_numpy(every[name]) for name, _ in self.part.layers if name in every]

    def carry(self, keep: bool) -> None:
        """Take over the final hidden states of all passes since the last call as the next initial
        ones if ``keep``, else discard them."""
        for samples, states in self.final_states if keep else ():
            self.hidden.store_final_states(samples, states)
        self.final_states.clear()

    def states(self) -> Arrays:
        """Return copies of the hidden states of all streams by stateful layer."""
        return {name: table.copy() for name, table in self.hidden.tables.items()}

    def load_states(self, state: Mapping[str, Arrays]) -> None:
        """Load this stage's part of the hidden states in the state of a whole training."""
        self.hidden.load(state)

    @torch.no_grad()
    def infer(self, x: torch.Tensor) -> torch.Tensor:
        """Return the stage's output for ``x``, without Dropout and without a graph."""
        output: torch.Tensor = self.part((x,))[-1]
        return output

    @torch.no_grad()
    def outputs(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the output of each layer in evaluation mode, by name."""
        return {name: values[-1] for name, values in self.part.walk((x,))}

    def parameters(self) -> dict[str, Any]:
        """Return references to the parameters here by canonical name."""
        return {name: rpc.RRef(parameter) for name, parameter in self.parameters_by_name.items()}

    def gradients(self, context: int) -> Arrays:
        """Return copies of this stage's gradients in a context by canonical name; zeros for
        parameters that the loss does not reach."""
        gradients = dist_autograd.get_gradients(context)
        return {
            n: gradients.get(p, torch.zeros_like(p)).numpy().copy()
            for n, p in self.parameters_by_name.items()
        }

    def finite(self, context: int) -> bool:
        """Return whether all gradients of this stage in a context are finite; missing ones count as
        finite."""
        own = dist_autograd.get_gradients(context)
        return all(
            bool(own[p].isfinite().all()) for p in self.parameters_by_name.values() if p in own
        )

    def unscale(self, context: int, scale: float) -> None:
        """Divide this stage's gradients in a context by the loss scale, in place."""
        own = dist_autograd.get_gradients(context)
        if gradients := [own[p] for p in self.parameters_by_name.values() if p in own]:
            torch._foreach_mul_(gradients, 1 / scale)

    def weights(self) -> Arrays:
        """Return copies of the stage's parameters as arrays by canonical name."""
        return {name: p.detach().numpy().copy() for name, p in self.parameters_by_name.items()}

    def load(self, weights: Arrays) -> None:
        """Copy canonical weights into this stage's parameters in place."""
        self.part.load(weights)


def call_method(stage: Any, method: str, *args: Any) -> Any:
    """Call ``method`` of the stage that the reference ``stage`` points to; return its result."""
    return getattr(stage.local_value(), method)(*args)


def _local_optimizer(local: Any) -> RuleOptimizer:
    """Return this rank's optimizer behind a reference of
    `DistributedOptimizer.remote_optimizers`."""
    optimizer: RuleOptimizer = local.local_value().optim
    return optimizer


def set_rate(local: Any, names: Sequence[str], lr: float) -> None:
    """Set the learning rate of all groups of this rank's optimizer; ``names`` is ignored."""
    for group in _local_optimizer(local).param_groups:
        group["lr"] = lr


def get_optimizer_state(local: Any, names: Sequence[str]) -> dict[str, Arrays]:
    """Return copies of this rank's optimizer state: state name → parameter name → array; ``names``
    are those of its parameters, in its order."""
    return state(_local_optimizer(local), names)


def set_optimizer_state(
    local: Any, names: Sequence[str], arrays: Mapping[str, Arrays], step: int
) -> None:
    """Restore this rank's optimizer state after update ``step``, 0 for a fresh start; ``arrays``
    may hold other ranks' parameters, too."""
    load_state(_local_optimizer(local), arrays, step, names)
