from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.ReLU()
        )
        self.classifier = nn.Linear(12, classes)

    def forward(self, image):
        small = F.interpolate(image, size=(12, 12), mode="bilinear")
        return self.classifier(self.features(small).mean(dim=(-2, -1)))
