from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, width=12, patch=4):
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch, has_bias=True)
        self.norm = nn.LayerNorm((width,), epsilon=1e-6)
        self.mix = nn.Conv2d(width, 2 * width, 1, has_bias=True)
        self.out = nn.Conv2d(2 * width, width, 1, has_bias=True)

    def construct(self, image):
        x = self.norm(self.proj(image).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        return x + self.out(ops.relu(self.mix(x)))
