"""The gradient of a table of which a batch reads few rows: the others are not cleared anew."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

backward = torch.ops.aten.embedding_dense_backward.default
#: So many times the rows that a batch reads has a table for which this is worth it.
FEW = 4


class TableGradient(nn.Module):
    """`aten.embedding_dense_backward`, bit by bit; the rows of a batch are added in its order.

    Attributes:
        lent: whether the result may be one tensor, call after call: of the last one only the rows
            that it has read are cleared. Nobody may write into others, or read it afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lent = False
        self.whole: Tensor | None = None
        self.rows: Tensor | None = None

    def forward(self, gradient: Tensor, rows: Tensor, *how: int) -> Tensor:
        if not self.lent:
            whole: Tensor = backward(gradient, rows, *how)
            return whole
        if self.whole is None or self.rows is None:
            self.whole = gradient.new_zeros(how[0], gradient.shape[-1])
        else:
            self.whole.index_fill_(0, self.rows, 0.0)
        self.rows = rows.reshape(-1).to(torch.int64, copy=True)
        return self.whole.index_add_(0, self.rows, gradient.reshape(len(self.rows), -1))


def put_tables(graph: GraphModule, there: dict[int, TableGradient]) -> None:
    """One in the place of each gradient of a large table that is a result of the graph, and is read
    by nothing else.

    Args:
        there: number of a result → of other graphs of this network, whose memory they share; what
            is new is added.
    """
    output = graph.graph.output_node()
    for number, node in enumerate(output.args[0]):  # type: ignore[arg-type, union-attr]
        if getattr(node, "target", None) is not backward or list(node.users) != [output]:
            continue
        gradient, rows, count, padding, scaled = node.args
        few = count >= FEW * rows.meta["val"].numel()
        if padding >= 0 or scaled or gradient.meta["val"].dtype != torch.float32 or not few:
            continue
        own = there.setdefault(number, TableGradient())
        graph.add_submodule(f"table{number}", own)
        with graph.graph.inserting_before(node):
            node.replace_all_uses_with(graph.graph.call_module(f"table{number}", node.args))
        graph.graph.erase_node(node)
    graph.recompile()
