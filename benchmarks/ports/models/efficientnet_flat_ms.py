"""EfficientNet in one cell: functional convolutions, the frozen norm written out."""

from mindspore import Parameter, mint, nn, ops
from mindspore.common.initializer import HeUniform, initializer

SETTINGS = [(8, 8, 1, 3, 1), (8, 8, 4, 5, 1), (8, 12, 1, 3, 2)]


def weight(name, *shape):
    return Parameter(initializer(HeUniform(), shape), name=name)


def vector(name, size, value="zeros", grad=True):
    return Parameter(initializer(value, (size,)), name=name, requires_grad=grad)


def swish(x):
    return x * mint.sigmoid(x)


class Net(nn.Cell):
    """The settings of the blocks stand in a table; k counts the weights in the order of use."""

    def __init__(self, classes=5):
        super().__init__()
        self.w0 = weight("w0", 8, 3, 3, 3)
        self.scale = vector("scale", 8, "ones")
        self.shift = vector("shift", 8)
        self.fixed_mean = vector("fixed_mean", 8, grad=False)
        self.fixed_var = vector("fixed_var", 8, "ones", grad=False)
        self.bns = nn.CellList()
        self.kernels = []
        for i, (cin, cout, ratio, size, _) in enumerate(SETTINGS):
            mid, low = cin * ratio, max(2, cin // 4)
            if ratio > 1:
                self.keep(f"b{i}_up", mid, cin, 1, 1)
                self.bns.append(nn.BatchNorm2d(mid, eps=1e-3, momentum=0.99))
            self.keep(f"b{i}_dw", mid, 1, size, size)
            self.bns.append(nn.BatchNorm2d(mid, eps=1e-3, momentum=0.99))
            self.keep(f"b{i}_sq", low, mid, 1, 1, bias=True)
            self.keep(f"b{i}_ex", mid, low, 1, 1, bias=True)
            self.keep(f"b{i}_down", cout, mid, 1, 1)
            self.bns.append(nn.BatchNorm2d(cout, eps=1e-3, momentum=0.99))
        self.keep("top", 24, 12, 1, 1, bias=True)
        self.fc = nn.Dense(24, classes)

    def keep(self, name, *shape, bias=False):
        setattr(self, name, weight(name, *shape))
        if bias:
            setattr(self, name + "_b", vector(name + "_b", shape[0]))

    def stem(self, x):
        x = ops.conv2d(x, self.w0, stride=2, pad_mode="pad", padding=1)
        factor = self.scale / mint.sqrt(self.fixed_var + 1e-3)
        offset = self.shift - self.fixed_mean * factor
        return swish(x * factor[:, None, None] + offset[:, None, None])

    def construct(self, x):
        x = self.stem(x)
        k = 0
        for i, (cin, cout, ratio, size, stride) in enumerate(SETTINGS):
            old = x
            if ratio > 1:
                x = swish(self.bns[k](ops.conv2d(x, getattr(self, f"b{i}_up"))))
                k += 1
            x = ops.conv2d(
                x,
                getattr(self, f"b{i}_dw"),
                stride=stride,
                pad_mode="pad",
                padding=(size - 1) // 2,
                groups=cin * ratio,
            )
            x = swish(self.bns[k](x))
            s = mint.mean(x.reshape(x.shape[0], x.shape[1], -1), -1)
            squeeze, excite = getattr(self, f"b{i}_sq"), getattr(self, f"b{i}_ex")
            s = mint.matmul(s, squeeze[:, :, 0, 0].T) + getattr(self, f"b{i}_sq_b")
            s = mint.matmul(swish(s), excite[:, :, 0, 0].T) + getattr(self, f"b{i}_ex_b")
            x = x * mint.sigmoid(s)[:, :, None, None]
            x = self.bns[k + 1](ops.conv2d(x, getattr(self, f"b{i}_down")))
            k += 2
            if stride == 1 and cin == cout:
                x = x + old
        x = swish(ops.conv2d(x, self.top, self.top_b))
        return self.fc(mint.mean(x, dim=(-2, -1)))
