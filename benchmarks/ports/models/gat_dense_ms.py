"""Graph attention on a matrix that counts the edges, a loop over heads."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def normal(name, *shape):
    """A parameter of normal numbers."""
    return Parameter(Tensor(np.random.randn(*shape), ms.float32), name=name)


class Net(nn.Cell):
    """Both layers in one cell, weights in PyTorch's order of shapes."""

    def __init__(self, features=5, size=4, heads=3, outputs=3):
        super().__init__()
        self.heads = heads
        wide = heads * size
        self.s1, self.d1 = normal("s1", heads, size), normal("d1", heads, size)
        self.b1, self.w1 = normal("b1", wide), normal("w1", wide, features)
        self.s2, self.d2 = normal("s2", heads, outputs), normal("d2", heads, outputs)
        self.b2, self.w2 = normal("b2", outputs), normal("w2", heads * outputs, wide)

    def layer(self, x, count, weight, source, target):
        """The heads' results as a list."""
        results = []
        for h, part in zip(range(self.heads), ops.chunk(weight, self.heads, 0)):
            y = mint.matmul(x, part.T)
            e = (y * target[h]).sum(1)[:, None] + (y * source[h]).sum(1)[None, :]
            e = mint.where(e > 0, e, 0.2 * e)
            e = mint.exp(e) * count
            results.append(mint.matmul(e / e.sum(1, keepdims=True), y))
        return results

    def construct(self, x, src, dst):
        n = x.shape[0]
        place = ops.arange(n)
        into = (dst[:, None] == place[None]).astype(ms.float32)
        out_of = (src[:, None] == place[None]).astype(ms.float32)
        count = mint.matmul(into.T, out_of) + Tensor(np.eye(n), ms.float32)
        h = mint.cat(self.layer(x, count, self.w1, self.s1, self.d1), 1) + self.b1
        h = mint.where(h > 0, h, mint.exp(mint.clamp(h, max=0.0)) - 1)
        results = self.layer(h, count, self.w2, self.s2, self.d2)
        return sum(results) / self.heads + self.b2
