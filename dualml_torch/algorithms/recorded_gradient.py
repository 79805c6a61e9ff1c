"""Loss and gradients as a recorded list of kernel calls, without modules and autograd in between.

The forward and the backward pass are recorded once per layout of the batch, then called again with
other samples and the current parameters. The kernels are those that autograd calls, with the same
arguments in the same order: every bit of the result is the same. This saves the work in between, a
quarter of an update of one sample, and the memory of tensors that can be overwritten.
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
#: Operations that return a view of their first argument without stating it in their schema.
VIEWS = (aten._unsafe_view.default,)
#: Operations that may write into the memory of their first argument → the in-place operator; only
#: if shape, type and layout are the same.
INPLACE_VARIANTS = {
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


class RecordedGradient:
    """``loss(network(*inputs), labels).backward()`` as a recorded graph, one per batch size.

    Args:
        network: on a CPU, without hooks. Code that gives its parameters other memory must call
            `clear`.
        compiled: batches of this size are also compiled, which takes seconds and needs a C++
            compiler; their results then differ by rounding. LSTMs are not compiled.
        accumulate: each gradient is added to its parameter's existing ``grad`` in place as soon as
            it is computed: there is never a second copy of all gradients.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, compiled: int = 0, *, accumulate: bool = False
    ) -> None:
        self.network, self.loss, self.compiled, self.accumulate = (
            network,
            loss,
            compiled,
            accumulate,
        )
        self.clear()

    def clear(self) -> None:
        """Drop all recorded graphs and take the network's current parameter tensors; the next call
        records again."""
        self.parameters = tuple(self.network.parameters())
        self.unit_share = torch.ones(())
        self.calls: dict[int, Call] = {}

    def __call__(self, inputs: Sequence[Tensor], labels: Tensor, share: float) -> Tensor:
        """Add ``share`` times the gradient of the mean loss to the parameters' ``grad`` (which
        becomes the gradient where it is None); return the mean loss, detached and not times
        ``share``."""
        loss, *gradients = self.gradient(inputs, labels, share)
        if self.accumulate:
            return loss
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient
            elif gradient is not None:
                parameter.grad = parameter.grad + gradient
        return loss

    def gradient(self, inputs: Sequence[Tensor], labels: Tensor, share: float = 1) -> Sequence[Any]:
        """Return the mean loss and ``share`` times each parameter's gradient, None for parameters
        that it does not reach; ``grad`` is unchanged. With `accumulate` the gradients are added to
        ``grad`` in place, and the mean loss alone is returned, still in a sequence."""
        part = self.unit_share if share == 1 else torch.full((), share)
        places = [p.grad for p in self.parameters] if self.accumulate else []
        given = (part, labels, *inputs, *self.parameters, *places)
        call = self.calls.get(len(labels))
        if call is None:
            graph = record_gradient(self.network, self.loss, part, labels, inputs, places)
            fused = len(labels) == self.compiled and OPAQUE.isdisjoint(called_operators(graph))
            call = self.calls[len(labels)] = compile_graph(graph, given) if fused else graph.forward
        with torch._C._AutoDispatchBelowAutograd():
            return call(*given)


def record_gradient(
    network: nn.Module,
    loss: Loss,
    share: Tensor,
    labels: Tensor,
    inputs: Sequence[Tensor],
    places: Sequence[Tensor | None] = (),
) -> GraphModule:
    """Return the recorded graph of ``(share, labels, *inputs, *parameters, *places)`` → the mean
    loss and, for each parameter, ``share`` times its gradient; None for one that the loss does not
    reach.

    Args:
        share: 0-dim. labels, inputs: of the shapes and layouts that will come.
        places: for each parameter, the tensor to which its gradient is added; then only the mean
            loss is returned.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    names, parameters = zip(*network.named_parameters(), strict=True)

    whole, end = LossAndGradients(network, loss), len(inputs) + len(names)

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
        accumulate_gradients(recorded.graph, len(places))
    recorded.recompile()
    return recorded


class LossAndGradients(nn.Module):
    """Loss and gradients in one call: recomputation in the backward pass uses the same parameters
    as the forward pass."""

    def __init__(self, network: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(
        self, share: Tensor, labels: Tensor, own: Sequence[Tensor], *inputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the mean loss, detached, and ``share`` times its gradient for each of the tensors
        ``own``; None for those that it does not reach."""
        mean = self.loss(self.network(*inputs), labels)
        return mean.detach(), *torch.autograd.grad(mean, own, share, allow_unused=True)


def called_operators(graph: GraphModule) -> set[Any]:
    """Return the targets of a graph's nodes: the operators that it calls, and the names of its
    inputs and output."""
    return {node.target for node in graph.graph.nodes}


def compile_graph(recorded: GraphModule, given: Sequence[Tensor]) -> Call:
    """Compile a graph with TorchInductor in one piece and return its function: `torch.compile`
    would make two, with guards. ``given`` are examples of its arguments. Sets the compiler's global
    ``deterministic`` as torch has it."""
    from torch._inductor import compile as fuse
    from torch._inductor import config

    config.deterministic = torch.are_deterministic_algorithms_enabled()
    # The code depends on the number of threads, but the compiler's cache key does not.
    options = {
        "cpp.threads": torch.get_num_threads(),
        "size_asserts": False,
        "alignment_asserts": False,
    }
    call: Call = fuse(recorded, [tensor.detach() for tensor in given], options=options)
    return call


def simplify(graph: Graph) -> None:
    """Change ``graph`` in place: remove what only autograd needs, and let operations write into
    memory that is not read any more."""
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
            last[storage_owner(used)] = order[node]
    for node in graph.nodes:
        if (
            node.target in INPLACE_VARIANTS
            and same_node_layout(node, node.args[0])
            and is_last_read(node.args[0], last, order[node])
        ):
            node.target = INPLACE_VARIANTS[node.target]
            outputs = [a.name for a in node.target._schema.arguments if a.kwarg_only and a.is_out]
            node.kwargs = {**node.kwargs, **dict.fromkeys(outputs, node.args[0])}
            # The result is in that memory: later readers of it read the owner.
            last[storage_owner(node.args[0])] = last.get(node, order[node])


def accumulate_gradients(graph: Graph, count: int) -> None:
    """Change ``graph`` in place so that it adds each gradient to its place, one of the last
    ``count`` inputs, as soon as it is computed, and returns the loss alone. A place without a
    gradient is left as it is."""
    places = [node for node in graph.nodes if node.op == "placeholder"][-count:]
    output = graph.output_node()
    loss, *gradients = output.args[0]  # type: ignore[misc]
    for place, gradient in zip(places, gradients, strict=True):
        if gradient is not None:
            with graph.inserting_after(gradient):
                graph.call_function(aten.add_.Tensor, (place, gradient))
    output.args = ((loss,),)


def storage_owner(node: Node) -> Node:
    """Return the node that allocated the memory of this one, found by following views and in-place
    operators; the node itself if it is neither."""
    while node.op == "call_function" and is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def is_view(node: Node) -> bool:
    """Return whether a node's result shares the memory of its first argument, as of a view or an
    in-place operator."""
    if node.target in VIEWS or node.target in INPLACE_VARIANTS.values():
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(value.alias_info for value in schema.returns)


def same_node_layout(node: Node, other: Any) -> bool:
    """Return whether both nodes are tensors of one shape, type and strides; False if ``other`` is
    no node."""
    if not isinstance(other, Node):
        return False
    one, two = node.meta["val"], other.meta["val"]
    return (one.shape, one.dtype, one.stride()) == (two.shape, two.dtype, two.stride())


def is_last_read(node: Node, last: dict[Node, int], now: int) -> bool:
    """Return whether node number ``now`` is the last that reads the memory of ``node``, and
    ``node`` is an operation's own result in the layout in which it was allocated, not an input of
    the graph. ``last``: owner of memory → number of its last reader."""
    if node.target in (aten.view.default, *VIEWS):
        node = node.args[0]  # type: ignore[assignment]
    own = node.op == "call_function" and (node.target is operator.getitem or not is_view(node))
    return own and last[node] == now
