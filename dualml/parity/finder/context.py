"""The results of replays, with everything needed to recompute them in the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import TrainingSpec
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.model import (
    ForwardContext,
    forward,
    layer_params,
    parameter_gradients,
    token_mask,
)
from dualml.backend.reference.types import TOKEN_MASK, Array, Params
from dualml.common.array_types import Arrays
from dualml.experiment.arm import Arm
from dualml.experiment.plan import Plan
from dualml.experiment.store.replays import ReplayRecord, States
from dualml.parallel.aggregation import ASYNCHRONOUS

T = TypeVar("T")
Index = NDArray[np.int64]
#: Phases in execution order; `aggregation` is the reduction of gradients over ranks.
PHASES = ("data", "forward", "loss", "gradient", "aggregation", "update", "state")
#: Backend name of the reference.
REFERENCE = "numpy"


class LayerIO(NamedTuple):
    """Input and output of one layer in the reference.

    Attributes:
        name, layer: the layer.
        value: what goes into it.
        output: what comes out of it.
        parameters: its parameters by leaf name.
    """

    name: str
    layer: Layer
    value: Array
    output: Array
    parameters: Params


@dataclass
class ReplayContext:
    """One (arm, seed) with the replays of the reference and the compared backends.

    Attributes:
        plan, arm_name: plan of the run and name of the arm.
        recipe: training specification of the arm.
        states: update → weights and optimizer state from which all sides started it.
        sides: backend → its replay.
        steps: the replayed updates.
        cache: results of recomputations.
    """

    plan: Plan
    arm_name: str
    recipe: TrainingSpec
    states: States
    sides: dict[str, ReplayRecord]
    steps: list[int]
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def arm(self) -> Arm:
        """The arm that was replayed."""
        return self.plan.experiment.arms[self.arm_name]

    @property
    def reference(self) -> ReplayRecord:
        """The replay of the reference."""
        return self.sides[REFERENCE]

    def indices_by_rank(self, step: int) -> list[Index]:
        """Return the sample indices of each rank; a single array if the ranks do not split the
        batch."""
        feed = self.plan.batch_sampler(self.arm, self.recipe.seed)
        if len(self.reference.ranks) == 1 or self.arm.split is not None:
            return [feed.batch(step)]
        return feed.parts(step)

    def rank_indices(self, step: int, rank: int) -> Index:
        """Return the sample indices of a rank; the whole batch if the ranks do not split it."""
        parts = self.indices_by_rank(step)
        return parts[rank] if len(parts) > 1 else parts[0]

    def batch_indices(self, step: int) -> Index:
        """Return the sample indices of the whole batch."""
        return np.concatenate(self.indices_by_rank(step))

    def weights(self, step: int) -> Params:
        """Return parameter name → float64 weights before update ``step``, the same for all sides;
        known only for the updates in `states`."""
        return {name: np.asarray(w, np.float64) for name, w in self.states[step][0].items()}

    def inputs(self, index: Index) -> NDArray[Any]:
        """Return the inputs of samples, in float64 or as tokens."""
        return np.asarray(
            self.recipe.x[index], np.int64 if self.recipe.spec.takes_tokens else np.float64
        )

    def layer_io(self, step: int, index: Index) -> list[LayerIO]:
        """Return every layer of the reference with its input and output for these samples, in layer
        order and without dropout. Cached."""

        def run_layers() -> list[LayerIO]:
            params, places = self.weights(step), []
            values: tuple[Any, ...] = (self.inputs(index),)
            here = token_mask(self.recipe.spec, values[0])
            for name, layer in self.recipe.spec.layers:
                before = values[-1]
                values, _ = forward(
                    [(name, layer)], params, values, ForwardContext(token_mask=here)
                )
                given = layer_params(name, layer, params) | (
                    {TOKEN_MASK: here} if layer.needs_padding_mask else {}
                )
                places.append(LayerIO(name, layer, before, values[-1], given))
            return places

        return self.cached(("places", step, index.tobytes()), run_layers)

    def forward(self, step: int, index: Index, weights: Params) -> tuple[Array, Any]:
        """Run the reference's forward pass with ``weights`` and the dropout masks of update
        ``step``; return the logits and the tape for the backward pass."""
        drawn = tuple(dropout_masks(self.recipe.spec, self.recipe.seed, step, index).values())
        spec, x = self.recipe.spec, self.inputs(index)
        context = ForwardContext(drawn, token_mask(spec, x))
        (out,), tape = forward(spec.layers, weights, (x,), context)
        return out, tape

    def logits(self, step: int, index: Index) -> tuple[Array, Any]:
        """Return (logits, tape) of `forward` with the weights before update ``step``; cached."""
        return self.cached(
            ("logits", step, index.tobytes()), lambda: self.forward(step, index, self.weights(step))
        )

    def gradient(
        self,
        step: int,
        index: Index,
        *,
        weights: Params | None = None,
        labels: NDArray[Any] | None = None,
        loss: Any = None,
    ) -> tuple[float, Params]:
        """Return mean loss and gradient of these samples in the reference, with the weights before
        update ``step``, the samples' labels and the arm's loss unless others are given.

        Args:
            loss: a function of (logits, labels) that returns the mean loss and its gradient by the
                logits.
        """
        params = self.weights(step) if weights is None else weights
        out, tape = self.forward(step, index, params)
        wanted = self.recipe.y[index] if labels is None else labels
        value, flow = (loss or LOSSES[self.recipe.loss])(out, wanted)
        grads = parameter_gradients(tape, params, (flow,))
        return value, {name: grads[name] for name in params}

    def sample_gradients(self, step: int, index: Index) -> list[tuple[float, Params]]:
        """Return (loss, gradient) of every sample separately, in the order of ``index``; cached."""
        return self.cached(
            ("each", step, index.tobytes()),
            lambda: [self.gradient(step, index[i : i + 1]) for i in range(len(index))],
        )

    def expected(self, backend: str, rank: int, key: str) -> NDArray[Any]:
        """Return the expected value of a tensor of a backend: the reference's, except after an
        update.

        Weights and optimizer state after an update are computed from this backend's own gradient,
        if it was recorded: if a rule divides by it, rounding of a gradient near 0 makes a large
        difference in the update, which is not the update's fault.

        Args:
            key: ``STEP/PHASE/TENSOR``.
        """
        step, phase, _ = key.split("/", 2)
        if phase in ("update", "state"):
            updated = self.own_update(backend, rank, int(step))
            if key in updated:
                return updated[key]
        return self.reference.ranks[rank][key]

    @property
    def is_one_update(self) -> bool:
        """Whether all ranks make one update together, from one gradient."""
        settings, split = self.arm.aggregation, self.arm.split
        apart = settings.strategy == ASYNCHRONOUS or settings.of == "parameters"
        return not apart and (split is None or split.arrival != "asynchronous")

    def own_gradient(self, backend: str, rank: int, step: int) -> Params:
        """Return the recorded gradient with which a rank updates, after aggregation if there is
        one.

        Empty if it was not recorded, or if the ranks do not make one update together.
        """
        seen, weights = self.sides[backend].ranks[rank], self.states[step][0]
        phase = "aggregation" if f"{step}/aggregation/{next(iter(weights))}" in seen else "gradient"
        keys = {name: f"{step}/{phase}/{name}" for name in weights}
        if not self.is_one_update or not all(k in seen for k in keys.values()):
            return {}
        return {name: np.asarray(seen[key], np.float64) for name, key in keys.items()}

    def recorded_start(self, step: int) -> tuple[Params, dict[str, Params]]:
        """Return weights and optimizer state before an update, rounded to float32 but held as
        float64; only state with one entry per parameter."""
        weights, state = self.states[step]

        def as_float32(named: Mapping[str, Any]) -> Params:
            return {n: np.asarray(a, np.float32).astype(np.float64) for n, a in named.items()}

        return as_float32(weights), {
            s: as_float32(n) for s, n in state.items() if set(n) == set(weights)
        }

    def own_update(self, backend: str, rank: int, step: int) -> Arrays:
        """Return the result of the update rule on a backend's own gradient: ``STEP/update/…`` and
        ``STEP/state/…``. Empty if the gradient or the state is unknown."""

        def work() -> Arrays:
            gradient = self.own_gradient(backend, rank, step)
            (weights, state), rule = self.recorded_start(step), self.arm.rule
            if not gradient or any(gradient[n].shape != w.shape for n, w in weights.items()):
                return {}
            if not set(rule.state_keys) <= set(state):
                return {}
            with np.errstate(all="ignore"):
                new, after = rule.update(
                    weights, gradient, state, step, self.recipe.learning_rate(step)
                )
            arrays = {f"{step}/update/{n}": w for n, w in new.items()}
            for slot, named in after.items():
                arrays |= {f"{step}/state/{slot}/{n}": a for n, a in named.items()}
            return arrays

        return self.cached(("update", backend, rank, step), work)

    def cached(self, key: Any, work: Callable[[], T]) -> T:
        """Return the cached result for a key, computed on first use."""
        if key not in self.cache:
            self.cache[key] = work()
        kept: T = self.cache[key]
        return kept
