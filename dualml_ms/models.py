"""Users' own MindSpore models in a comparison; implements
`dualml.parity.models.worker.ModelBackend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import UserError
from dualml.parity.models.construction import record_construction
from dualml.parity.models.operations import SourceLocation
from dualml.parity.models.probe import class_axis, probe_weights
from dualml.parity.models.trace import iter_tensors
from dualml_ms.algorithms.optim import optimizer as own
from dualml_ms.common.environment import resolve_device
from dualml_ms.parity.compiled import ModuleReplay, compile_module, has_active_dropout
from dualml_ms.parity.operations import SKIP
from dualml_ms.parity.recorder import Recorder, updated_parameters
from dualml_ms.parity.stated import module_settings

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
    """Seed MindSpore and set PyNative mode, which hooks need, with blocking launches, so that
    errors are raised where they occur.

    Args:
        device: the device of this process, see `resolve_device`; ``cpu`` leaves the choice to
            MindSpore.

    Raises:
        UserError: an unknown device.
        Unsupported: this build of MindSpore cannot drive the device.
    """
    if device != "cpu":
        resolve_device(device)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()
    ms.set_seed(seed)


def move(value: Any, device: str, dtype: str) -> Any:
    """Return a cell, changed in place, or a tensor whose floating-point numbers have the dtype of
    this name; everything else keeps its own. ``device`` is that of the process, see `prepare`."""
    kind = getattr(ms, dtype)
    if isinstance(value, nn.Cell):
        for parameter in value.get_parameters():
            if parameter.is_floating_point():
                parameter.set_dtype(kind)
        return value
    return value.astype(kind) if value.is_floating_point() else value


def is_model(value: Any) -> bool:
    """Return whether a value is a `mindspore.nn.Cell`."""
    return isinstance(value, nn.Cell)


def load_checkpoint(model: nn.Cell, path: Path) -> None:
    """Load a ``.ckpt`` or safetensors file into a cell, with all of its parameters and no others.

    Raises:
        UserError: names, shapes or types differ, or the file cannot be read.
    """
    try:
        values = ms.load_checkpoint(str(path), format=path.suffix.removeprefix("."))
        absent, extra = ms.load_param_into_net(model, values, strict_load=True)
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: MindSpore cannot load it: {str(error)[:400]}") from None
    if absent or extra:
        raise UserError(f"{path}: MindSpore finds no {absent}, and no use for {extra}")


def building() -> AbstractContextManager[dict[int, SourceLocation]]:
    """Record where the user's code constructs each of MindSpore's own cells inside the block; the
    block gets a dict, id of the cell → place in the source. Instances of other classes, such as
    the user's, are left out."""
    return record_construction(nn.Cell, SKIP)


def set_threads(count: int) -> None:
    """Let MindSpore's runtime use so many threads; kernels that have started keep theirs."""
    ms.set_context(runtime_num_threads=count)


def train(model: nn.Cell, on: bool) -> None:
    """Set ``model`` to training mode if ``on``, else to evaluation mode; anything but a cell is
    left unchanged."""
    if isinstance(model, nn.Cell):  # the recorder reports anything else
        model.set_train(on)  # a cell starts in evaluation mode


def tensor(array: NDArray[Any]) -> ms.Tensor:
    """Make a tensor of a NumPy array, of its dtype; integers become int32."""
    if array.dtype.kind in "iu":
        array = array.astype(np.int32)  # several kernels refuse int64
    return ms.Tensor(array)


def optimizer(model: nn.Cell, given: Any) -> Any:
    """Make an optimizer over the model's trainable parameters: ``given`` is a rule of
    `dualml.algorithms.optim`, or a function of the parameters.

    Raises:
        UserError: the optimizer cannot be called, or is one of `mindspore.mint.optim`.
    """
    parameters = model.trainable_params()
    optimizer = own(given, parameters) if isinstance(given, OptimizerSpec) else given(parameters)
    if not callable(optimizer):
        raise UserError(
            "the optimizer must be one of mindspore.nn or of mindspore.experimental.optim, or your "
            f"own that is called with the gradients; received {type(optimizer).__name__}"
        )
    if type(optimizer).__module__.startswith("mindspore.mint"):
        raise UserError("the optimizers of mindspore.mint.optim change nothing on a CPU")
    return optimizer


def step(
    model: nn.Cell,
    loss: Callable[[Any, Any], ms.Tensor] | None,
    optimizer: Callable[..., Any] | None,
    recorder: Recorder,
    takes: bool = True,
) -> Callable[..., None]:
    """Return a function of a step's inputs, of which the last is the targets if ``takes``. It
    computes the loss and gradients and passes them to `recorder.saw`, then updates the parameters
    if there is an ``optimizer``; without a ``loss`` it only makes a forward pass with all of
    them."""
    parameters = updated_parameters(model, optimizer)
    order = {id(p): name for name, p in model.parameters_and_names()}

    def mean(*given: Any) -> ms.Tensor:
        *inputs, targets = given if takes else (*given, None)
        with recorder.watch_operations():
            return loss(model(*inputs), targets)

    gradient = ms.value_and_grad(mean, None, ms.ParameterTuple(parameters))

    def forward(*given: Any) -> None:
        with recorder.watch_operations():
            model(*given)

    def train_step(*given: Any) -> None:
        value, gradients = gradient(*given)
        named = {order[id(p)]: g for p, g in zip(parameters, gradients, strict=True)}
        recorder.saw(loss=value, gradients=named)
        if optimizer is not None:
            optimizer(gradients)

    return forward if loss is None else train_step


def losses() -> dict[str, Callable[[Any, Any], ms.Tensor]]:
    """Return the built-in losses by name: ``cross_entropy``, ``mse`` and ``probe``."""
    return {"cross_entropy": cross_entropy, "mse": mse, "probe": probe}


def is_tensor(value: Any) -> bool:
    """Return whether a value is a MindSpore tensor; parameters are."""
    return isinstance(value, ms.Tensor)


def first_tensor(outputs: Any) -> ms.Tensor:
    """Return the first tensor of a model's outputs; raise `UserError` if there is none."""
    tensors = [value for _, value in iter_tensors(outputs, is_tensor)]
    if not tensors:
        raise UserError(f"the model returned {type(outputs).__name__}, which has no tensor")
    return tensors[0]


def cross_entropy(outputs: Any, targets: ms.Tensor) -> ms.Tensor:
    """Return the mean cross entropy of the first tensor of the outputs; classes on axis 1 or on the
    last axis, as the shape of the targets tells. Raise `UserError` if there is no tensor."""
    logits = first_tensor(outputs)
    if class_axis(logits.shape, targets.shape) == 1:
        logits = logits.transpose(0, *range(2, logits.ndim), 1)
    return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def mse(outputs: Any, targets: ms.Tensor) -> ms.Tensor:
    """Return the mean squared error of the first tensor of the outputs; raise `UserError` if there
    is none or its shape is not that of the targets."""
    value = first_tensor(outputs)
    if value.shape != targets.shape:
        raise UserError(f"loss 'mse': outputs {value.shape}, targets {targets.shape}")
    return ops.mean((value - targets) * (value - targets))


def probe(outputs: Any, _: None) -> ms.Tensor:
    """Return the sum over all floating-point outputs of mean(c · y) with fixed normal numbers c;
    the targets are ignored. Raise `UserError` if no output is a floating-point tensor."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    total = None
    for i, (_, y) in enumerate(iter_tensors(outputs, is_tensor)):
        if y.is_floating_point():
            part = (y * ms.Tensor(probe_weights(i, y.shape), y.dtype)).mean()
            total = part if total is None else total + part
    if total is None:
        raise UserError("no output is a floating-point number; compare with loss='none'")
    return total
