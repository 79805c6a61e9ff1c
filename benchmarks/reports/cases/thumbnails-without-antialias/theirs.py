import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.fc = nn.Linear(12, classes)

    def forward(self, image):
        x = F.interpolate(image, (12, 12), mode="bilinear", align_corners=False, antialias=True)
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))
