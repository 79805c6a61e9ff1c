"""The MindSpore port of net_torch.py, with the same training script."""

import mindspore as ms
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Dense(8, width)
        self.norm1 = nn.LayerNorm((width,), epsilon=1e-5)
        self.qkv = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)
        self.norm2 = nn.LayerNorm((width,), epsilon=1e-5)
        self.up = nn.Dense(width, 4 * width)
        self.act = nn.GELU(approximate=False)
        self.down = nn.Dense(4 * width, width)
        self.head = nn.Dense(width, 10)

    def attention(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(2, 3) / (w // self.heads) ** 0.5
        mixed = ops.softmax(scores, -1) @ v
        return self.out(mixed.swapaxes(1, 2).reshape(b, t, w))

    def construct(self, x):
        x = self.embed(x)
        x = x + self.attention(self.norm1(x))
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.head(x.mean(1))


if __name__ == "__main__":
    from batch import start, x, y

    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    net.set_train()
    named = list(net.parameters_and_names())
    for (_, p), w in zip(named, start([(n, p.shape) for n, p in named]), strict=True):
        p.set_data(ms.Tensor(w))
    optimizer = nn.SGD(net.trainable_params(), 0.1, momentum=0.9)

    def criterion(x, y):
        return ops.cross_entropy(net(x), y)

    gradient = ms.value_and_grad(criterion, None, optimizer.parameters)
    for step in range(1, 11):
        loss, gradients = gradient(ms.Tensor(x), ms.Tensor(y, ms.int32))
        optimizer(gradients)
        if step in (1, 2, 5, 10):
            print(f"update {step:2d}  loss {float(loss):.8f}")
