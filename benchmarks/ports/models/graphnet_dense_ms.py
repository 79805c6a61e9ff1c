"""The message-passing network with matrices of zeros and ones for the edge lists."""

import mindspore as ms
from mindspore import Parameter, Tensor, mint, nn, ops


def incidence(index, size):
    """One row for each of size, one column for each entry of the index."""
    hot = ops.one_hot(index.astype(ms.int32), size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    return mint.permute(hot, (1, 0))


def elu(x):
    """x above zero, exp(x) - 1 below."""
    return mint.where(x > 0, x, mint.exp(-ops.relu(-x)) - 1)


def average(matrix):
    """Each row divided by its sum, empty rows kept."""
    return matrix / mint.sum(matrix, 1, keepdim=True).clip(1, None)


def maximum(matrix, values):
    """Maximum of the rows that the matrix names, zero where there are none."""
    open_ = matrix.expand_dims(2) * values.expand_dims(0) - (1 - matrix.expand_dims(2)) * 1e6
    return ops.amax(open_, 1) * (mint.sum(matrix, 1, keepdim=True) > 0).astype(ms.float32)


class Net(nn.Cell):
    """All layers in one cell."""

    def __init__(self, wide=10, graphs=3):
        super().__init__()
        self.graphs = graphs
        self.first = nn.Dense(5, wide)
        self.own_weight = Parameter(Tensor(0.3, ms.float32))
        self.bond = nn.Dense(3, wide)
        self.gin_in = nn.Dense(wide, 2 * wide, has_bias=False)
        self.gin_bn = nn.BatchNorm1d(2 * wide)
        self.gin_out = nn.Dense(2 * wide, wide)
        self.sage_far = nn.Dense(wide, wide)
        self.sage_near = nn.Dense(wide, wide, has_bias=False)
        self.gcn_dense = nn.Dense(wide, wide)
        self.ends = nn.Dense(2 * wide, wide)
        self.bn = nn.BatchNorm1d(2 * wide)
        self.hidden = nn.Dense(6 * wide, 16)
        self.classes = nn.Dense(16, 4)

    def construct(self, x, edges, edge, batch):
        n = x.shape[0]
        out_of = incidence(edges[0], n)
        into = incidence(edges[1], n)
        give = mint.permute(out_of, (1, 0))
        take = mint.permute(into, (1, 0))
        x = self.first(x)
        messages = mint.nn.functional.relu(mint.matmul(give, x) + self.bond(edge))
        a = x + self.own_weight * x + mint.matmul(into, messages)
        a = self.gin_out(mint.nn.functional.relu(self.gin_bn(self.gin_in(a))))
        a = elu(a)
        adjacency = mint.matmul(into, give)
        s = self.sage_far(mint.matmul(average(adjacency), a)) + self.sage_near(a)
        b = x + s / mint.sqrt(mint.sum(mint.square(s), 1, keepdim=True))
        loops = adjacency + ops.eye(n, n, ms.float32)
        root = mint.sqrt(mint.sum(loops, 1, keepdim=True))
        flow = loops / root / mint.permute(root, (1, 0))
        c = mint.matmul(mint.matmul(flow, b), self.gcn_dense.weight.T) + self.gcn_dense.bias
        here = mint.matmul(take, b)
        pair = self.ends(mint.cat([here, mint.matmul(give, b) - here], 1))
        c = elu(c + maximum(into, pair))
        h = self.bn(mint.cat([a, c], 1))
        member = incidence(batch, self.graphs)
        pooled = [mint.matmul(average(member), h), maximum(member, h), mint.matmul(member, h)]
        return self.classes(elu(self.hidden(mint.cat(pooled, 1))))
