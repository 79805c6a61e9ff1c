"""A user's own JAX models in a comparison; implements
`dualml.parity.models.worker.ModelBackend`.

A model is an object with an attribute ``parameters``, a tree of float arrays (nested dicts, lists
or tuples), that is called as ``model(parameters, *inputs)`` and changes nothing:

    class Net:
        def __init__(self):
            self.parameters = {"fc": {"weight": jnp.zeros((3, 8)), "bias": jnp.zeros(3)}}

        def __call__(self, parameters, x):
            return x @ parameters["fc"]["weight"].T + parameters["fc"]["bias"]

JAX calls no hooks inside of a function: outputs, loss, gradients and updates are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import UserError
from dualml.parity.models.probe import class_axis, probe_weights
from dualml.parity.models.trace import iter_tensors
from dualml_jax.network import cross_entropy as token_cross_entropy
from dualml_jax.recorder import Recorder, RuleOptimizer, is_array, is_model, name_leaves, set_leaves

__all__ = [
    "Recorder",
    "building",
    "compile_module",
    "has_active_dropout",
    "is_model",
    "load_checkpoint",
    "losses",
    "module_settings",
    "move",
    "optimizer",
    "prepare",
    "set_threads",
    "step",
    "tensor",
    "train",
]


def prepare(seed: int, device: str = "cpu") -> None:
    """Check that the device is the CPU, and seed NumPy, from which models may draw weights."""
    if device != "cpu":
        raise UserError(f"backend jax runs on the CPU only; received --device {device}")
    np.random.seed(seed)


def building() -> AbstractContextManager[dict[int, Any]]:
    """Return a context that records no places: a function has no layers that are built."""
    return nullcontext({})


def set_threads(count: int) -> None:
    """Do nothing: XLA chooses its threads when the process starts."""


def module_settings(model: Any) -> dict[str, dict[str, Any]]:
    """Return an empty dict: a function has no modules that state settings."""
    return {}


def train(model: Any, on: bool) -> None:
    """Do nothing: a pure function has no mode."""


def has_active_dropout(model: Any) -> bool:
    """Return False: a pure function draws no random numbers."""
    return False


def load_checkpoint(model: Any, path: Path) -> None:
    """Set a model's parameters from a safetensors file, with all of their names and no others.

    Raises:
        UserError: another format, or names or shapes differ.
    """
    if path.suffix != ".safetensors":
        raise UserError(f"{path}: backend jax reads safetensors files only")
    values, known = load_file(path), name_leaves(model.parameters)
    if {n: one.shape for n, one in values.items()} != {n: one.shape for n, one in known.items()}:
        raise UserError(f"{path}: names or shapes are not those of the model")
    set_leaves(model, {n: jnp.asarray(one, known[n].dtype) for n, one in values.items()})


def compile_module(model: Any, mode: str) -> None:
    """Raise `UserError`: the backend declares no compiled mode."""
    raise UserError(f"backend jax has no mode {mode}")


def tensor(array: np.ndarray) -> jax.Array:
    """Return an array as a JAX array; integers become int32, JAX's default."""
    return jnp.asarray(array)


def move(value: Any, device: str, dtype: str) -> Any:
    """Return an array, or a model, changed in place, with floating-point numbers of a dtype."""
    if is_model(value):
        value.parameters = jax.tree_util.tree_map(lambda one: one.astype(dtype), value.parameters)
        return value
    return value.astype(dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


def optimizer(model: Any, given: Any) -> RuleOptimizer:
    """Make the optimizer of an update rule; raise `UserError` for a function of the user's."""
    if not isinstance(given, OptimizerSpec):
        raise UserError(
            "backend jax knows dualml's own update rules; name one, such as --optimizer adam"
        )
    return RuleOptimizer(given, model)


def step(
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    optimizer: RuleOptimizer | None,
    recorder: Recorder,
    takes: bool = True,
) -> Callable[..., None]:
    """Return the function of one step: outputs, loss and gradients, then an update unless
    ``optimizer`` is None. Without a ``loss`` it computes the outputs alone.

    Args:
        takes: whether the step's last argument is the target, else the loss gets None.
    """

    def forward(*given: Any) -> None:
        recorder.report_outputs(model(model.parameters, *given))

    def train_step(*given: Any) -> None:
        *inputs, targets = given if takes else (*given, None)

        def compute_loss(parameters: Any) -> tuple[Any, Any]:
            outputs = model(parameters, *inputs)
            return loss(outputs, targets), outputs

        compute = jax.value_and_grad(compute_loss, has_aux=True)
        (value, outputs), gradients = compute(model.parameters)
        recorder.report_outputs(outputs)
        named = name_leaves(gradients)
        recorder.saw(loss=value, gradients=named)
        if optimizer is not None:
            optimizer.step(named)

    return forward if loss is None else train_step


def losses() -> dict[str, Callable[[Any, Any], Any]]:
    """Return the built-in losses, functions of outputs and targets, by name."""
    return {"cross_entropy": cross_entropy, "mse": mse, "probe": probe}


def first_array(outputs: Any) -> Any:
    """Return the first array among a model's outputs, however nested; `UserError` if there is
    none."""
    arrays = [value for _, value in iter_tensors(outputs, is_array)]
    if not arrays:
        raise UserError(f"the model returned {type(outputs).__name__}, which has no array")
    return arrays[0]


def cross_entropy(outputs: Any, targets: Any) -> Any:
    """Return the mean cross entropy of the first output array, logits with the classes on axis 1 or
    on the last axis, as the targets' shape tells."""
    logits = first_array(outputs)
    if class_axis(tuple(logits.shape), tuple(targets.shape)) == 1:
        logits = jnp.moveaxis(logits, 1, -1)
    return token_cross_entropy(logits, targets)


def mse(outputs: Any, targets: Any) -> Any:
    """Return the mean squared error of the first output array; `UserError` if its shape is not the
    targets'."""
    value = first_array(outputs)
    if value.shape != targets.shape:
        raise UserError(f"loss 'mse': outputs {tuple(value.shape)}, targets {tuple(targets.shape)}")
    return jnp.square(value - targets).mean()


def probe(outputs: Any, _: None) -> Any:
    """Return the sum over all floating-point outputs of mean(c · y), with normal numbers c that are
    fixed for each output's position and shape; `UserError` if there is no such output."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    parts = [
        (y * jnp.asarray(probe_weights(i, tuple(y.shape)), y.dtype)).mean()
        for i, (_, y) in enumerate(iter_tensors(outputs, is_array))
        if jnp.issubdtype(y.dtype, jnp.floating)
    ]
    if not parts:
        raise UserError("no output is an array of floats; compare with loss='none'")
    return sum(parts)
