"""Graph attention on a list of edges."""

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import XavierNormal, initializer


class GATConv(nn.Cell):
    """Several heads; softmax over the edges into a node."""

    def __init__(self, in_channels, out_channels, heads, concat=True):
        super().__init__()
        self.heads = heads
        self.out_channels = out_channels
        self.concat = concat
        self.lin = nn.Dense(in_channels, heads * out_channels, has_bias=False)
        init = XavierNormal()
        self.att_src = Parameter(initializer(init, (heads, out_channels), ms.float32))
        self.att_dst = Parameter(initializer(init, (heads, out_channels), ms.float32))
        width = heads * out_channels if concat else out_channels
        self.bias = Parameter(ops.zeros((width,), ms.float32))
        self.leaky_relu = nn.LeakyReLU(alpha=0.2)

    def construct(self, x, src, dst):
        n = x.shape[0]
        h = self.lin(x).reshape(n, self.heads, self.out_channels)
        alpha_src = (h * self.att_src).sum(-1)
        alpha_dst = (h * self.att_dst).sum(-1)
        e = self.leaky_relu(ops.gather(alpha_src, src, 0) + ops.gather(alpha_dst, dst, 0))
        highest = ops.unsorted_segment_max(ops.stop_gradient(e), dst, n)
        e = ops.exp(e - ops.gather(highest, dst, 0))
        total = ops.unsorted_segment_sum(e, dst, n)
        alpha = e / ops.gather(total, dst, 0)
        message = ops.gather(h, src, 0) * alpha.expand_dims(-1)
        out = ops.unsorted_segment_sum(message, dst, n)
        if self.concat:
            out = out.reshape(n, self.heads * self.out_channels)
        else:
            out = out.mean(axis=1)
        return out + self.bias


class Net(nn.Cell):
    """Two layers, self-loops are added to the edges."""

    def __init__(self, features=5, size=4, heads=3, outputs=3):
        super().__init__()
        self.gat1 = GATConv(features, size, heads)
        self.gat2 = GATConv(heads * size, outputs, heads, concat=False)
        self.elu = nn.ELU()

    def construct(self, x, src, dst):
        loops = ops.arange(x.shape[0]).astype(ms.int32)
        src = ops.concat((src.astype(ms.int32), loops))
        dst = ops.concat((dst.astype(ms.int32), loops))
        h = self.elu(self.gat1(x, src, dst))
        return self.gat2(h, src, dst)
