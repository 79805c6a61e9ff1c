from torch import nn


class Net(nn.Module):
    def __init__(self, channels=12, groups=4):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(2, channels, 3, padding=1), nn.GroupNorm(groups, channels)
        self.conv2, self.norm2 = nn.Conv3d(channels, channels, 3, padding=1), nn.GroupNorm(groups, channels)
        self.act, self.final = nn.ELU(), nn.Conv3d(channels, 3, 1)

    def forward(self, x):
        x = self.act(self.norm1(self.conv1(x)))
        return self.final(self.act(self.norm2(self.conv2(x))))
