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
        """Register a trained parameter without memory, on the meta device; any other, and one that
        has none already, as it is."""
        if param is not None and not param.is_meta and param.requires_grad:
            param = nn.Parameter(param.detach().to("meta"))
        register(module, name, param)

    nn.Module.register_parameter = register_empty  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


class BlockFunction(torch.autograd.Function):
    """A `BlockCall`, one call of a block, as a single node of the graph of gradients: its gradients
    are those that the call itself computes."""

    @staticmethod
    def forward(ctx: Any, call: BlockCall, anchor: torch.Tensor, *tensors: Any) -> Any:
        """Return a tuple of the outputs of ``call`` for the input tensors. ``anchor`` is a scalar
        that requires a gradient: with it among the inputs the node always gets gradients."""
        ctx.call = call
        outputs = tuple(call.forward(tensors))
        whole = [one for one in outputs if not one.is_floating_point()]
        ctx.mark_non_differentiable(*whole)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradients of all inputs of `forward`: None for the call and the anchor, then
        those of the input tensors."""
        return None, None, *ctx.call.backward(gradients)


class BlockAccess:
    """Access to the blocks (modules that run with weights of the caller) of a model that was made
    inside `building_empty`; converts the model's floating-point parameters and buffers to
    ``dtype``.

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
        """Replace parameters of the model, by name and in every module that has them, by these
        tensors, converted to their types, permanently."""
        for name, tensor in weights.items():
            old = self.model.get_parameter(name)
            new = nn.Parameter(tensor.to(old.dtype), old.requires_grad)
            for module in self.model.modules():
                for key, own in list(module._parameters.items()):
                    if own is old:
                        setattr(module, key, new)

    @torch.no_grad()
    def load_constant(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor into the buffer, or the parameter with memory, of this name."""
        known = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        known[name].copy_(tensor)

    def intercept(self, name: str, make_call: CallFactory, *, differentiated: bool) -> None:
        """Replace calls of the block ``name``, from now on, by the `BlockCall` that ``make_call``
        returns for their arguments; the block's own function is kept for `run` and `differentiate`.

        Args:
            differentiated: whether the calls are nodes of a graph of gradients, where those are
                enabled.
        """
        module = self.model.get_submodule(name)
        self.forwards[name] = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            """Make one call of the block by a `BlockCall`."""
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
        """Inside the context, let the block ``name`` have these weights, by their names in the
        model; yield the block."""
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
        """Return the output of the intercepted block ``name``, computed with ``weights`` and
        without a graph from copies of the input ``tensors``, of which ``rebuild`` makes the
        arguments."""
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
        """Return the gradients of an intercepted block's trained weights, by name (zeros if
        unused), and of its input tensors, None where there is none.

        Args:
            weights: the block's weights by their names in the model.
            tensors: the input tensors, which are copied.
            rebuild: makes the block's arguments of the input tensors.
            gradients: gradients of the output tensors, None for those that have none.
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
        """Make a forward and a backward pass of the whole model; return ``loss(outputs, targets)``,
        and the ``.grad`` of the trained parameters that have memory, by name, zeros for None; it
        adds up over calls until `load` replaces the parameters."""
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
        """Make one update of these weights, by their names in the model, with their gradients, by
        the optimizer that ``make_optimizer`` makes over a module. Yield this module, which has the
        new weights under the same names and computes nothing, and the optimizer."""
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
        """Return the whole model's output for these inputs, computed without a graph."""
        with torch.no_grad():
            return self.model(*inputs)

    def is_missing_weight(self, error: Exception) -> bool:
        """Return whether an error says that a parameter without memory was used."""
        return isinstance(error, RuntimeError | NotImplementedError) and "meta" in str(error)
