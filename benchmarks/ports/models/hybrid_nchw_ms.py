"""The hybrid channels first, with batch norm and excitation by hand and a library RMSprop."""

import mindspore as ms
from mindspore import Parameter, mint, nn, ops
from mindspore.experimental import optim


class ConvNorm(nn.Cell):
    """Convolution, batch norm by hand, SiLU."""

    def __init__(self, inputs, c, stride, group):
        super().__init__()
        self.conv = nn.Conv2d(inputs, c, 3, stride, pad_mode="pad", padding=1, group=group)
        self.weight = Parameter(ops.ones(c, ms.float32))
        self.bias = Parameter(ops.zeros(c, ms.float32))
        self.running_mean = Parameter(ops.zeros(c, ms.float32), requires_grad=False)
        self.running_var = Parameter(ops.ones(c, ms.float32), requires_grad=False)

    def construct(self, x):
        x = self.conv(x)
        mean, var = self.running_mean, self.running_var
        if self.training:
            n = x.shape[0] * x.shape[2] * x.shape[3]
            mean = mint.mean(x, (0, 2, 3))
            var = mint.mean(mint.square(x - mean[:, None, None]), (0, 2, 3))
            ops.assign(self.running_mean, 0.9 * self.running_mean + 0.1 * mean)
            ops.assign(self.running_var, 0.9 * self.running_var + 0.1 * n / (n - 1) * var)
        scale = self.weight * mint.rsqrt(var + 1e-5)
        x = (x - mean[:, None, None]) * scale[:, None, None] + self.bias[:, None, None]
        return x * mint.sigmoid(x)


class Attention(nn.Cell):
    """A loop over the heads, keys and values never split by a reshape."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.size = heads, d // heads
        self.before = nn.LayerNorm([d], epsilon=1e-5)
        self.qkv = nn.Dense(d, 3 * d, has_bias=False)
        self.out = nn.Dense(d, d)

    def construct(self, x):
        qkv = ops.split(self.qkv(self.before(x)), self.size, axis=2)
        heads = []
        for i in range(self.heads):
            q, k, v = qkv[i], qkv[i + self.heads], qkv[i + 2 * self.heads]
            p = ops.softmax(ops.bmm(q * self.size**-0.5, k.swapaxes(1, 2)), -1)
            heads.append(ops.bmm(p, v))
        return x + self.out(ops.cat(heads, 2))


class Net(nn.Cell):
    """Input [B, 3, 10, 10]."""

    def __init__(self, c=8, heads=2, classes=4):
        super().__init__()
        self.stem = ConvNorm(3, c, 2, 1)
        self.depthwise = ConvNorm(c, c, 1, c)
        self.squeeze = nn.Conv2d(c, 4, 1, has_bias=True)
        self.excite = nn.Conv2d(4, c, 1, has_bias=True)
        self.attention = Attention(c, heads)
        self.norm = nn.LayerNorm([c], epsilon=1e-5)
        self.up, self.down = nn.Dense(c, 2 * c), nn.Dense(2 * c, c)
        self.fuse = nn.Conv2d(2 * c, c, 1, has_bias=True)
        self.head = nn.Dense(c, classes)

    def construct(self, x):
        x = self.depthwise(self.stem(x))
        s = ops.adaptive_avg_pool2d(x, 1)
        x = x * ops.sigmoid(self.excite(ops.relu(self.squeeze(s))))
        y = self.attention(ops.flatten(x, start_dim=2).transpose(0, 2, 1))
        y = y + self.down(ops.silu(self.up(self.norm(y))))
        y = y.transpose(0, 2, 1).reshape(x.shape)
        x = ops.silu(self.fuse(ops.cat((x, y), 1)))
        return self.head(mint.mean(x, (2, 3)))


def optimizer(parameters):
    """MindSpore's experimental RMSprop follows PyTorch's formula."""
    return optim.RMSprop(parameters, lr=0.01, alpha=0.9, eps=1e-3, momentum=0.9)
