"""A message-passing network over edge lists: GINE, GraphSAGE, degree-normed and max layers, three readouts."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def count_of(index, size):
    """How often each number stands in the index."""
    ones = ops.ones((index.shape[0],), ms.float32)
    return ops.unsorted_segment_sum(ones, index, size)


def scatter_sum(values, index, size):
    return ops.unsorted_segment_sum(values, index, size)


def scatter_mean(values, index, size):
    count = ops.clamp(count_of(index, size), min=1)
    return scatter_sum(values, index, size) / count.expand_dims(1)


def scatter_max(values, index, size):
    top = ops.unsorted_segment_max(values, index, size)
    filled = (count_of(index, size) > 0).expand_dims(1)
    return ops.where(filled, top, ops.zeros_like(top))


class GINE(nn.Cell):
    """Sum of relu(neighbour + edge), an own weight for the node itself."""

    def __init__(self, d):
        super().__init__()
        self.eps = Parameter(Tensor(0.3, ms.float32))
        self.edge = nn.Dense(3, d)
        self.mlp = nn.SequentialCell(
            nn.Dense(d, 2 * d, has_bias=False),
            nn.BatchNorm1d(2 * d, momentum=0.9),
            nn.ReLU(),
            nn.Dense(2 * d, d),
        )

    def construct(self, x, src, dst, edge):
        message = ops.relu(x[src] + self.edge(edge))
        return self.mlp((1 + self.eps) * x + scatter_sum(message, dst, x.shape[0]))


class SAGE(nn.Cell):
    """Mean of the neighbours, the node itself in a second layer, rows of length one."""

    def __init__(self, d):
        super().__init__()
        self.neighbour = nn.Dense(d, d)
        self.itself = nn.Dense(d, d, has_bias=False)

    def construct(self, x, src, dst):
        out = self.neighbour(scatter_mean(x[src], dst, x.shape[0])) + self.itself(x)
        return out / ops.norm(out, ord=2, dim=-1, keepdim=True)


class GCN(nn.Cell):
    """Self-loops and symmetric norm by the degrees."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Dense(d, d, has_bias=False)
        self.bias = Parameter(Tensor(0.1 * np.random.randn(d), ms.float32))

    def construct(self, x, src, dst):
        nodes = x.shape[0]
        loop = ops.arange(nodes).astype(ms.int32)
        src = ops.cat([src, loop])
        dst = ops.cat([dst, loop])
        norm = ops.rsqrt(count_of(dst, nodes))
        weight = (norm[src] * norm[dst]).expand_dims(1)
        return scatter_sum(self.weight(x)[src] * weight, dst, nodes) + self.bias


class EdgePool(nn.Cell):
    """Maximum over the incoming edges of a function of both ends."""

    def __init__(self, d):
        super().__init__()
        self.linear = nn.Dense(2 * d, d)

    def construct(self, x, src, dst):
        pair = ops.cat([x[dst], x[src] - x[dst]], axis=-1)
        return scatter_max(self.linear(pair), dst, x.shape[0])


class Net(nn.Cell):
    """Classes of the graphs in a batch."""

    def __init__(self, d=10, graphs=3):
        super().__init__()
        self.graphs = graphs
        self.embed = nn.Dense(5, d)
        self.gine = GINE(d)
        self.sage = SAGE(d)
        self.gcn = GCN(d)
        self.pool = EdgePool(d)
        self.norm = nn.BatchNorm1d(2 * d)
        self.head = nn.SequentialCell(nn.Dense(6 * d, 16), nn.ELU(), nn.Dense(16, 4))

    def construct(self, x, edges, edge, batch):
        edges = edges.astype(ms.int32)
        batch = batch.astype(ms.int32)
        src = edges[0]
        dst = edges[1]
        x = self.embed(x)
        a = ops.elu(self.gine(x, src, dst, edge))
        b = x + self.sage(a, src, dst)
        c = ops.elu(self.gcn(b, src, dst) + self.pool(b, src, dst))
        h = self.norm(ops.cat([a, c], axis=-1))
        mean = scatter_mean(h, batch, self.graphs)
        top = scatter_max(h, batch, self.graphs)
        total = scatter_sum(h, batch, self.graphs)
        return self.head(ops.cat([mean, top, total], axis=-1))
