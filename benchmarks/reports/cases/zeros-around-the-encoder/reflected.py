from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width),
        )

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.ReLU())
        self.pad = nn.ReflectionPad2d(1)
        self.down = nn.ModuleList(
            nn.Conv2d(width * 2**i, width * 2 ** (i + 1), 3, stride=2) for i in range(2)
        )
        self.middle = Residual(4 * width)
        self.up = nn.Sequential(nn.PixelShuffle(4), nn.ReflectionPad2d(3), nn.Conv2d(width // 4, 3, 7))

    def forward(self, x):
        x = self.stem(x)
        for conv in self.down:
            x = nn.functional.instance_norm(conv(self.pad(x))).relu()
        return self.up(self.middle(x)).tanh()
