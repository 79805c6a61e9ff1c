"""Modules that `torch.compile` translates: for one side of a comparison, and one at a time to find
the smallest that computes something else than eager mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._pytree import tree_map

from dualml.common.errors import UserError
from dualml.parity.models.probe import probe_weights
from dualml.parity.models.trace import iter_tensors

Arrays = dict[str, NDArray[Any]]
#: Modules that draw random numbers in training mode.
DROPOUTS = (nn.modules.dropout._DropoutNd,)


def compile_module(module: nn.Module, mode: str = "compile") -> None:
    """Replace a module's ``forward`` by what `torch.compile` makes of it, until `restore_forward`;
    the module's own hooks are called as before. The first call compiles. Sets global options of the
    compiler. ``mode`` is ignored.

    Raises:
        UserError: this PyTorch, or this machine, cannot compile.
    """
    check_compiler()
    from torch._inductor import config

    config.compile_threads = 1  # other processes would compile for one module
    config.fallback_random = True  # the numbers that eager mode draws
    compiled = torch.compile(module.forward)

    def forward(*given: Any, **named: Any) -> Any:
        # Tracers and the like see no calls inside of a compiled graph, and would be compiled.
        with torch._C.DisableTorchFunction():
            return compiled(*given, **named)

    module.forward = forward  # type: ignore[method-assign]


def restore_forward(module: nn.Module) -> None:
    """Undo `compile_module`: give a module the ``forward`` of its class again."""
    vars(module).pop("forward", None)


def check_compiler() -> None:
    """Raise `UserError` if `torch.compile` cannot work here: on this version of Python, or without
    a C++ compiler."""
    if not torch._dynamo.is_dynamo_supported():
        raise UserError(f"torch {torch.__version__} cannot compile here; compare in mode eager")
    if torch.cuda.is_available():
        return
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        cpp_builder.get_cpp_compiler()
    except InvalidCxxCompiler:
        raise UserError(
            "torch.compile needs a C++ compiler on a CPU, and there is none; install g++ (or name "
            "one in CXX), or compare in mode eager"
        ) from None


def has_active_dropout(model: nn.Module) -> bool:
    """Return whether a Dropout of the model draws random numbers in its present mode."""
    return any(
        isinstance(module, DROPOUTS) and module.training and module.p > 0
        for module in model.modules()
    )


class ModuleReplay:
    """Runs a model's modules alone, on the inputs that each had in its first call in a forward
    pass, which is made now; the model's state is left as it was.

    Args:
        model: the whole model, in eager mode.
        inputs: inputs of the model.
        seed: seed of PyTorch's generator before each run.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Any], seed: int) -> None:
        self.modules, self.seed = dict(model.named_modules()), seed
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        with contextlib.ExitStack() as stack:
            for name, module in self.modules.items():
                handle = module.register_forward_pre_hook(self.make_hook(name), with_kwargs=True)
                stack.callback(handle.remove)
            torch.manual_seed(seed)
            kept = copy_state(model)
            with torch.no_grad():
                model(*[copy_value(value) for value in inputs])
            model.load_state_dict(kept)

    def make_hook(self, name: str) -> Callable[..., None]:
        """Return a hook, called before a module's forward pass, that stores copies of the inputs of
        the first call of the module ``name``."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name not in self.calls:
                self.calls[name] = tree_map(copy_value, args), tree_map(copy_value, kwargs)

        return hook

    def source(self, name: str) -> tuple[str, Callable[..., Any]]:
        """Return a module's type name and the function that computes it."""
        return type(self.modules[name]).__name__, type(self.modules[name]).forward

    def run(self, name: str, mode: str, move: Callable[[Arrays], Arrays] | None) -> Arrays:
        """Run the module of this name alone on its recorded inputs, forward and backward, and leave
        it as it was. Return its outputs (``output…``), then the gradients of its trained parameters
        (``gradient NAME``) and inputs (``gradient of input N``), then its buffers (``state NAME``).

        Args:
            mode: ``compile``, or empty for eager mode.
            move: function of the arrays of trained parameters by name, and of floating-point inputs
                as ``input N``, whose result replaces them for this run; None for no change.
        """
        module = self.modules[name]
        args, kwargs = self.calls[name]
        given, kwargs = tree_map(copy_value, args), tree_map(copy_value, kwargs)
        values = [one for one in given if is_real(one)]
        kept = copy_state(module)
        parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if move is not None:
            move_tensors(move, {**parameters, **{f"input {i}": x for i, x in enumerate(values)}})
        if mode:
            compile_module(module, mode)
        try:
            with torch.enable_grad():
                sources = {f"gradient {n}": p for n, p in parameters.items()}
                for i, value in enumerate(values):
                    sources[f"gradient of input {i}"] = value.requires_grad_()
                torch.manual_seed(self.seed)
                # Copies: a module may write to its inputs, and a leaf cannot be written to.
                views = {id(value): value * 1 for value in values}
                outputs = module(*[views.get(id(x), x) for x in given], **kwargs)
                named = iter_tensors(outputs, torch.is_tensor)
                found = {f"output{tail}": to_array(y) for tail, y in named}
                found |= probe_gradients(outputs, sources)
            found |= {f"state {n}": to_array(b) for n, b in module.named_buffers()}
        finally:
            if mode:
                restore_forward(module)
            module.load_state_dict(kept)
        return found


def probe_gradients(outputs: Any, sources: Mapping[str, torch.Tensor]) -> Arrays:
    """Return the gradients of the outputs' sum, weighted with fixed normal numbers, with respect to
    the tensors ``sources``, by their names; those that no output depends on are left out."""
    total: Any = None
    for i, (_, y) in enumerate(iter_tensors(outputs, torch.is_tensor)):
        if y.is_floating_point() and y.requires_grad:
            part = (y * torch.from_numpy(probe_weights(i, tuple(y.shape))).to(y)).mean()
            total = part if total is None else total + part
    if total is None or not sources:
        return {}
    gradients = torch.autograd.grad(total, list(sources.values()), allow_unused=True)
    named = zip(sources, gradients, strict=True)
    return {name: to_array(g) for name, g in named if g is not None}


def move_tensors(move: Callable[[Arrays], Arrays], tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy into tensors, by name, what ``move`` returns for the dict of their arrays."""
    with torch.no_grad():
        for name, value in move({n: to_array(x) for n, x in tensors.items()}).items():
            tensors[name].copy_(torch.from_numpy(np.asarray(value)).to(tensors[name]))


def copy_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of a module's state dict (parameters and persistent buffers), for
    ``load_state_dict``."""
    return {name: copy_value(value) for name, value in module.state_dict().items()}


def copy_value(value: Any) -> Any:
    """Return a detached copy of a tensor; any other value itself."""
    return value.detach().clone() if torch.is_tensor(value) else value


def is_real(value: Any) -> bool:
    """Return whether a value is a tensor of real floating-point numbers."""
    return torch.is_tensor(value) and value.is_floating_point()


def to_array(value: torch.Tensor) -> NDArray[Any]:
    """Return a host copy of a tensor; bfloat16 becomes float32, complex numbers become pairs."""
    value = value.detach().cpu()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    value = value.float() if value.dtype == torch.bfloat16 else value
    return value.resolve_neg().numpy().copy()
