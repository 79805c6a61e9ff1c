from torch import nn

MOMENTUM = 0.99  # as the TensorFlow original writes it


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn0 = nn.BatchNorm2d(8, momentum=1 - MOMENTUM, eps=1e-3)
        self.project = nn.Conv2d(8, 16, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16, momentum=1 - MOMENTUM, eps=1e-3)
        self.act, self.fc = nn.SiLU(), nn.Linear(16, 4)

    def forward(self, x):
        x = self.act(self.bn0(self.stem(x)))
        x = self.act(self.bn1(self.project(x)))
        return self.fc(x.mean((2, 3)))
