"""Users' own PyTorch models in a comparison; implements
`dualml.parity.models.worker.ModelBackend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch.nn import functional

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import UserError
from dualml.parity.models.construction import record_construction
from dualml.parity.models.operations import SourceLocation
from dualml.parity.models.probe import class_axis, probe_weights
from dualml.parity.models.trace import iter_tensors
from dualml_torch.algorithms.optim import optimizer as own
from dualml_torch.common.environment import resolve_device
from dualml_torch.parity.compiled import ModuleReplay, compile_module, has_active_dropout
from dualml_torch.parity.operations import SKIP
from dualml_torch.parity.recorder import Recorder
from dualml_torch.parity.stated import module_settings

__all__ = [
    "ModuleReplay",
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
    """Seed PyTorch's global random generator, and check that ``device`` exists.

    Raises:
        UserError, Unsupported: there is no such device.
    """
    resolve_device(device)
    torch.manual_seed(seed)


def move(value: Any, device: str, dtype: str) -> Any:
    """Return a module, changed in place, or a tensor on a device; its floating-point numbers have
    the dtype of this name, everything else keeps its own."""
    place = resolve_device(device)
    if isinstance(value, torch.nn.Module) or value.is_floating_point():
        return value.to(place, getattr(torch, dtype))
    return value.to(place)


def is_model(value: Any) -> bool:
    """Return whether a value is a `torch.nn.Module`."""
    return isinstance(value, torch.nn.Module)


def load_checkpoint(model: torch.nn.Module, path: Path) -> None:
    """Load the tensors of a safetensors file into a module in place; the file must have all names
    of the module's state dict and no others. UserError: names or shapes differ, or the file cannot
    be read."""
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise UserError(f"{path}: PyTorch cannot load it: {str(error)[:400]}") from None


def building() -> AbstractContextManager[dict[int, SourceLocation]]:
    """Record where the user's code constructs each of PyTorch's own modules inside the block; the
    block gets a dict, id of the module → place in the source. Instances of other classes, such as
    the user's, are left out."""
    return record_construction(torch.nn.Module, SKIP)


def set_threads(count: int) -> None:
    """Let PyTorch's kernels use so many threads of this process."""
    torch.set_num_threads(count)


def train(model: torch.nn.Module, on: bool) -> None:
    """Set training mode of a module if ``on``, else evaluation mode; ignore any other object."""
    if isinstance(model, torch.nn.Module):  # the recorder reports anything else
        model.train(on)


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor on the CPU that shares its memory."""
    return torch.from_numpy(array)


def optimizer(model: torch.nn.Module, given: Any) -> Any:
    """Make the optimizer over a model's trainable parameters: that of the rule ``given``, or what
    the user's function ``given`` returns for them. UserError: that is no
    `torch.optim.Optimizer`."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = own(given, parameters) if isinstance(given, OptimizerSpec) else given(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UserError(
            f"the optimizer must be a torch.optim.Optimizer; received {type(optimizer).__name__}"
        )
    return optimizer


def step(
    model: torch.nn.Module,
    loss: Callable[[Any, Any], torch.Tensor] | None,
    optimizer: torch.optim.Optimizer | None,
    recorder: Recorder,
    takes: bool = True,
) -> Callable[..., None]:
    """Return the function of one step: forward and backward pass under ``recorder``, then an update
    unless ``optimizer`` is None. Without a ``loss`` it runs the forward pass alone, without
    gradients.

    Args:
        takes: whether the step's last argument is the target; otherwise all are inputs of the
            model, and the loss gets None. Without a ``loss`` all are inputs.
    """

    def forward(*given: Any) -> None:
        with torch.no_grad(), recorder.watch_operations():
            model(*given)

    def train_step(*given: Any) -> None:
        *inputs, targets = given if takes else (*given, None)
        model.zero_grad()
        with recorder.watch_operations():
            value = loss(model(*inputs), targets)
        value.backward()
        recorder.saw(loss=value)
        if optimizer is not None:
            optimizer.step()

    return forward if loss is None else train_step


def losses() -> dict[str, Callable[[Any, Any], torch.Tensor]]:
    """Return name → built-in loss, a function of outputs and targets: ``cross_entropy``, ``mse``
    and ``probe``."""
    return {"cross_entropy": cross_entropy, "mse": mse, "probe": probe}


def first_tensor(outputs: Any) -> torch.Tensor:
    """Return the first tensor among a model's outputs, however nested. UserError: there is none."""
    tensors = [value for _, value in iter_tensors(outputs, torch.is_tensor)]
    if not tensors:
        raise UserError(f"the model returned {type(outputs).__name__}, which has no tensor")
    return tensors[0]


def cross_entropy(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of the first output tensor, logits with the classes on axis 1
    or on the last axis, as the targets' shape tells."""
    logits = first_tensor(outputs)
    if class_axis(tuple(logits.shape), tuple(targets.shape)) == 1:
        logits = logits.movedim(1, -1)
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def mse(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of the first output tensor. UserError: its shape is not the
    targets'."""
    value = first_tensor(outputs)
    if value.shape != targets.shape:
        raise UserError(f"loss 'mse': outputs {tuple(value.shape)}, targets {tuple(targets.shape)}")
    return functional.mse_loss(value, targets)


def probe(outputs: Any, _: None) -> torch.Tensor:
    """Return the sum over all floating-point outputs of mean(c · y), with normal numbers c that are
    fixed for each output's position and shape; targets are ignored. UserError: no output depends on
    a parameter."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    total = None
    for i, (_, y) in enumerate(iter_tensors(outputs, torch.is_tensor)):
        if y.is_floating_point():
            part = (y * torch.from_numpy(probe_weights(i, tuple(y.shape))).to(y)).mean()
            total = part if total is None else total + part
    if total is None or not total.requires_grad:
        raise UserError("no output depends on a parameter; compare with loss='none'")
    return total
