from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3)
        self.out = nn.Linear(48, 6)

    def forward(self, images):
        x = images.permute(0, 3, 1, 2) / 255 - 0.5
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.out(x.flatten(1))
