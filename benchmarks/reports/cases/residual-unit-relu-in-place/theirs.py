from torch import nn


class ResidualConvUnit(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(x)
        y = self.conv1(y)
        y = self.relu(y)
        return self.conv2(y) + x


class Net(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        self.project = nn.Conv2d(3, features, 1)
        self.unit1, self.unit2 = ResidualConvUnit(features), ResidualConvUnit(features)
        self.head = nn.Conv2d(features, 1, 1)

    def forward(self, image):
        return self.head(self.unit2(self.unit1(self.project(image))))
