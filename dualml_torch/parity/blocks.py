"""Parts of a PyTorch model that run with weights of the caller; implements
`dualml.parity.models.lockstep.access.BlockAccess`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dualml.parity.models.lockstep.access import BlockCall, CallFactory, Rebuild
from dualml.parity.models.lockstep.structure import flatten

Weights = Mapping[str, torch.Tensor]


@contextlib.contextmanager
def building_empty() -> Iterator[None]:
    """Let the trained parameters of all modules that are made inside the block have a shape, but
    no memory; other parameters and buffers are made as usual."""
    register = nn.Module.register_parameter

    def register_empty(module: nn.Module, name: str, param: Any) -> None:
        """Register a parameter on the meta device, one that several modules share as it is."""
        if param is not None and not param.is_meta and param.requires_grad:
            param = nn.Parameter(param.detach().to("meta"))
        register(module, name, param)

    nn.Module.register_parameter = register_empty  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


class BlockFunction(torch.autograd.Function):
    """A call of a block as one node of the graph: its gradients are those that the call returns."""

    @staticmethod
    def forward(ctx: Any, call: BlockCall, anchor: torch.Tensor, *tensors: Any) -> Any:
        """Return the output tensors of a call; ``anchor`` lets them depend on a parameter."""
        ctx.call = call
        outputs = tuple(call.forward(tensors))
        whole = [one for one in outputs if not one.is_floating_point()]
        ctx.mark_non_differentiable(*whole)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradients of the input tensors."""
        return None, None, *ctx.call.backward(gradients)


class BlockAccess:
    """Access to the blocks of a model that was made inside `building_empty`.

    Args:
        model: the model.
        dtype: name of the type of its floating-point numbers.
    """

    def __init__(self, model: nn.Module, dtype: str) -> None:
        self.model, self.dtype = model, getattr(torch, dtype)
        self.anchor = torch.zeros((), requires_grad=True)
        self.forwards: dict[str, Callable[..., Any]] = {}
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    setattr(module, name, buffer.to(self.dtype))
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(self.dtype)

    def is_float(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has floating-point numbers."""
        return tensor.is_floating_point()

    def empty_parameters(self) -> list[str]:
        """Return the names of the parameters without memory."""
        return [name for name, one in self.model.named_parameters() if one.is_meta]

    def shared_parameters(self) -> list[str]:
        """Return the names of parameters that several modules have, such as tied embeddings."""
        count = Counter(
            id(p) for module in self.model.modules() for p in module._parameters.values()
        )
        return [name for name, p in self.model.named_parameters() if count[id(p)] > 1]

    def load(self, weights: Weights) -> None:
        """Give parameters of the model, by name, these tensors for good."""
        for name, tensor in weights.items():
            old = self.model.get_parameter(name)
            new = nn.Parameter(tensor.to(old.dtype), old.requires_grad)
            for module in self.model.modules():
                for key, own in list(module._parameters.items()):
                    if own is old:
                        setattr(module, key, new)

    @torch.no_grad()
    def load_constant(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor into a buffer or a parameter that has memory."""
        known = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        known[name].copy_(tensor)

    def intercept(self, name: str, make_call: CallFactory, *, differentiated: bool) -> None:
        """Let calls of a block be made by what ``make_call`` returns for their arguments."""
        module = self.model.get_submodule(name)
        self.forwards[name] = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            """Make one call of the block."""
            tensors, rebuild = flatten((args, kwargs), torch.is_tensor)
            call = make_call(name, tensors, rebuild)
            if differentiated and torch.is_grad_enabled():
                outputs = BlockFunction.apply(call, self.anchor, *tensors)
            else:
                outputs = call.forward(tensors)
            return call.rebuild_output(outputs)

        module.forward = forward

    @contextlib.contextmanager
    def loaded(self, name: str, weights: Weights) -> Iterator[nn.Module]:
        """Let a block have these weights, by their names in the model, inside the context."""
        module, replaced = self.model.get_submodule(name), []
        new: dict[int, nn.Parameter] = {}
        for full, tensor in weights.items():
            old = self.model.get_parameter(full)
            new[id(old)] = nn.Parameter(tensor, old.requires_grad)
        for inner in module.modules():
            for key, own in list(inner._parameters.items()):
                if id(own) in new:
                    replaced.append((inner, key, own))
                    setattr(inner, key, new[id(own)])
        try:
            yield module
        finally:
            for inner, key, own in replaced:
                setattr(inner, key, own)

    def run(
        self, name: str, weights: dict[str, Any], tensors: Sequence[Any], rebuild: Rebuild
    ) -> Any:
        """Return the output of a block, computed with these weights without a graph."""
        args, kwargs = rebuild([one.detach().clone() for one in tensors])
        with torch.no_grad(), self.loaded(name, weights):
            return self.forwards[name](*args, **kwargs)

    def differentiate(
        self,
        name: str,
        weights: dict[str, Any],
        tensors: Sequence[Any],
        rebuild: Rebuild,
        gradients: Sequence[Any],
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the gradients of a block's weights, by name, and of its input tensors, None where
        there is none.

        Args:
            gradients: of the output tensors, None for those that have none.
        """
        leaves = [one.detach().clone() for one in tensors]
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
        with torch.enable_grad(), self.loaded(name, weights):
            # A block may change its inputs in place, which a leaf forbids.
            args, kwargs = rebuild([x.clone() if x.requires_grad else x for x in leaves])
            outputs, _ = flatten(self.forwards[name](*args, **kwargs), torch.is_tensor)
            ends = [
                (output, gradient)
                for output, gradient in zip(outputs, gradients, strict=True)
                if gradient is not None and output.requires_grad
            ]
            parameters = {n: self.model.get_parameter(n) for n in weights}
            trained = {n: p for n, p in parameters.items() if p.requires_grad}
            floats = [leaf for leaf in leaves if leaf.requires_grad]
            found = torch.autograd.grad(
                [output for output, _ in ends],
                [*trained.values(), *floats],
                [gradient.to(output.dtype) for output, gradient in ends],
                allow_unused=True,
            )
        of_weights = {
            n: torch.zeros_like(p) if g is None else g
            for (n, p), g in zip(trained.items(), found, strict=False)
        }
        rest = iter(found[len(trained) :])
        return of_weights, [next(rest) if leaf.requires_grad else None for leaf in leaves]

    def step(
        self, loss: Callable[[Any, Any], Any], inputs: Sequence[Any], targets: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Make a forward and a backward pass; return the loss, and the gradients of the parameters
        that stay in memory, by name."""
        value = loss(self.model(*inputs), targets)
        value.backward()
        return value, {
            name: torch.zeros_like(p) if p.grad is None else p.grad
            for name, p in self.model.named_parameters()
            if p.requires_grad and not p.is_meta
        }

    @contextlib.contextmanager
    def updated(
        self,
        weights: dict[str, Any],
        gradients: Weights,
        make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    ) -> Iterator[tuple[nn.Module, torch.optim.Optimizer]]:
        """Make one update of these weights, by their names in the model, with their gradients; the
        context gets a model that has the new weights under the same names, and the optimizer."""
        model = nn.Module()
        for name, tensor in weights.items():
            *path, last = name.split(".")
            module = model
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            parameter = nn.Parameter(tensor)
            parameter.grad = gradients[name].to(parameter.dtype)
            module.register_parameter(last, parameter)
        optimizer = make_optimizer(model)
        optimizer.step()
        yield model, optimizer

    def forward(self, inputs: Sequence[Any]) -> Any:
        """Return the model's output without a graph."""
        with torch.no_grad():
            return self.model(*inputs)

    def is_missing_weight(self, error: Exception) -> bool:
        """Return whether an error says that a parameter without memory was used."""
        return isinstance(error, RuntimeError | NotImplementedError) and "meta" in str(error)
