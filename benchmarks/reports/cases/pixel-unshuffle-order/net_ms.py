from mindspore import nn, ops


def space_to_depth(x, r):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // r, r, w // r, r)
    return x.transpose(0, 3, 5, 1, 2, 4).reshape(b, r * r * c, h // r, w // r)


class Net(nn.Cell):
    def __init__(self, channels=3, width=12):
        super().__init__()
        conv = dict(pad_mode="pad", padding=1, has_bias=True)
        self.head = nn.Conv2d(4 * channels, width, 3, **conv)
        self.body = nn.Conv2d(width, width, 3, **conv)
        self.tail = nn.Conv2d(width, 4 * channels, 3, **conv)
        self.shuffle = nn.PixelShuffle(2)

    def construct(self, image):
        x = ops.relu(self.head(space_to_depth(image, 2)))
        x = x + ops.relu(self.body(x))
        return image + self.shuffle(self.tail(x))
