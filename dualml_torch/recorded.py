"""Loss and gradients as a recorded list of kernel calls, without modules and autograd between them.

The forward and the backward pass are recorded once for a layout of the batch, then called again
with other samples and the parameters of the day. The kernels are those autograd calls, with the
same arguments in the same order: every bit of the result is the same. What is saved is the work in
between, a quarter of an update of one sample, and the memory of tensors that can be overwritten.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

Loss = Callable[[Tensor, Tensor], Tensor]
Call = Callable[..., Sequence[Any]]

aten = torch.ops.aten
#: Operations that look at the memory of their first argument without saying so in their schema.
VIEWS = (aten._unsafe_view.default,)
#: Operation → its variant that writes into the memory of the first argument; used only if shape,
#: type and layout of the result are the same.
INTO = {
    aten.relu.default: aten.relu_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten._log_softmax.default: aten._log_softmax.out,
    aten._log_softmax_backward_data.default: aten._log_softmax_backward_data.out,
}
#: Kernels that TorchInductor cannot call.
OPAQUE = {aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default}


class Recorded:
    """What ``loss(network(*inputs), labels).backward()`` does, recorded once a size of the batch.

    Args:
        network: on a CPU, without hooks. Who gives its parameters other memory calls `forget`.
        compiled: batches of this size go through the compiler, too, which takes seconds and needs
            a C++ compiler; their results then differ by rounding. Not those of an LSTM.
        added: each gradient is added to its parameter's ``grad``, which is there and stays where
            it is, as soon as the list has made it: there is never a second gradient of them all.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, compiled: int = 0, *, added: bool = False
    ) -> None:
        self.network, self.loss, self.compiled, self.added = network, loss, compiled, added
        self.forget()

    def forget(self) -> None:
        self.parameters = tuple(self.network.parameters())
        self.whole = torch.ones(())
        self.calls: dict[int, Call] = {}

    def __call__(self, inputs: Sequence[Tensor], labels: Tensor, share: float) -> Tensor:
        """Add ``share`` times the gradient of the mean loss to the parameters'; the mean loss."""
        loss, *gradients = self.gradient(inputs, labels, share)
        if self.added:
            return loss
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            elif gradient is not None:
                parameter.grad = parameter.grad + gradient
        return loss

    def gradient(self, inputs: Sequence[Tensor], labels: Tensor, share: float = 1) -> Sequence[Any]:
        """The mean loss, and what belongs to each parameter; None where the loss does not reach.
        The mean loss alone of gradients that are `added`."""
        part = self.whole if share == 1 else torch.full((), share)
        places = [p.grad for p in self.parameters] if self.added else []
        given = (part, labels, *inputs, *self.parameters, *places)
        call = self.calls.get(len(labels))
        if call is None:
            graph = record(self.network, self.loss, part, labels, inputs, places)
            fused = len(labels) == self.compiled and OPAQUE.isdisjoint(targets(graph))
            call = self.calls[len(labels)] = compiled(graph, given) if fused else graph.forward
        with torch._C._AutoDispatchBelowAutograd():
            return call(*given)


def record(
    network: nn.Module,
    loss: Loss,
    share: Tensor,
    labels: Tensor,
    inputs: Sequence[Tensor],
    places: Sequence[Tensor | None] = (),
) -> GraphModule:
    """``(share, labels, *inputs, *parameters, *places)`` → the mean loss and, for each parameter,
    ``share`` times its gradient; None for one that the loss does not reach.

    Args:
        share: 0-dim. labels, inputs: of the shapes and layouts that will come.
        places: of each parameter, what its gradient is added to; then the mean loss alone is
            returned.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names, parameters = zip(*network.named_parameters(), strict=True)

    whole, end = Gradient(network, loss), len(inputs) + len(names)

    def run(share: Tensor, labels: Tensor, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        given, own = tensors[: len(inputs)], tensors[len(inputs) : end]
        named = {f"network.{name}": p for name, p in zip(names, own, strict=True)}
        results: tuple[Tensor | None, ...] = torch.func.functional_call(
            whole, named, (share, labels, own, *given)
        )
        return results

    recorded = make_fx(run)(share, labels, *inputs, *parameters, *places)
    simplify(recorded.graph)
    if places:
        add_up(recorded.graph, len(places))
    recorded.recompile()
    return recorded


class Gradient(nn.Module):
    """Loss and gradients in one call: what is computed again in the backward pass takes the same
    parameters as the forward pass."""

    def __init__(self, network: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(
        self, share: Tensor, labels: Tensor, own: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        mean = self.loss(self.network(*inputs), labels)
        return mean.detach(), *torch.autograd.grad(mean, own, share, allow_unused=True)


def targets(graph: GraphModule) -> set[Any]:
    """What is called."""
    return {node.target for node in graph.graph.nodes}


def compiled(recorded: GraphModule, given: Sequence[Tensor]) -> Call:
    """The same by TorchInductor, in one piece: `torch.compile` would make two, with guards."""
    from torch._inductor import compile as fuse
    from torch._inductor import config

    config.deterministic = torch.are_deterministic_algorithms_enabled()
    # The number of threads goes into the code, but of itself not into the compiler's cache.
    options = {
        "cpp.threads": torch.get_num_threads(),
        "size_asserts": False,
        "alignment_asserts": False,
    }
    call: Call = fuse(recorded, [tensor.detach() for tensor in given], options=options)
    return call


def simplify(graph: Graph) -> None:
    """Leave out what only autograd needs, and write into memory that nothing reads any more."""
    for node in graph.nodes:
        if node.target is aten.detach.default:
            node.replace_all_uses_with(node.args[0])
        elif node.target is aten.t.default:
            before = node.args[0]
            if before.target is aten.t.default:
                node.replace_all_uses_with(before.args[0])
    graph.eliminate_dead_code()
    order = {node: number for number, node in enumerate(graph.nodes)}
    last: dict[Node, int] = {}  # owner of memory → the last node that reads it
    for node in graph.nodes:
        for used in node.all_input_nodes:
            last[owner(used)] = order[node]
    for node in graph.nodes:
        if (
            node.target in INTO
            and alike(node, node.args[0])
            and is_free(node.args[0], last, order[node])
        ):
            node.target = INTO[node.target]
            outputs = [a.name for a in node.target._schema.arguments if a.kwarg_only and a.is_out]
            node.kwargs = {**node.kwargs, **dict.fromkeys(outputs, node.args[0])}
            # The result is that memory: who reads it later reads its owner.
            last[owner(node.args[0])] = last.get(node, order[node])


def add_up(graph: Graph, count: int) -> None:
    """Add each gradient to its place, one of the last ``count`` inputs, as soon as it is there."""
    places = [node for node in graph.nodes if node.op == "placeholder"][-count:]
    output = graph.output_node()
    loss, *gradients = output.args[0]  # type: ignore[misc]
    for place, gradient in zip(places, gradients, strict=True):
        if gradient is not None:
            with graph.inserting_after(gradient):
                graph.call_function(aten.add_.Tensor, (place, gradient))
    output.args = ((loss,),)


def owner(node: Node) -> Node:
    """The node that made the memory this one looks at."""
    while node.op == "call_function" and looks(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def looks(node: Node) -> bool:
    """Whether the result is the memory of the first argument."""
    if node.target in VIEWS or node.target in INTO.values():
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(value.alias_info for value in schema.returns)


def alike(node: Node, other: Any) -> bool:
    """Whether both are tensors of one shape, type and layout."""
    if not isinstance(other, Node):
        return False
    one, two = node.meta["val"], other.meta["val"]
    return (one.shape, one.dtype, one.stride()) == (two.shape, two.dtype, two.stride())


def is_free(node: Node, last: dict[Node, int], now: int) -> bool:
    """Whether ``now`` is the last to read this memory, laid out as its operation made it."""
    if node.target in (aten.view.default, *VIEWS):
        node = node.args[0]  # type: ignore[assignment]
    own = node.op == "call_function" and (node.target is operator.getitem or not looks(node))
    return own and last[node] == now
