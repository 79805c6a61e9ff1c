"""A small VGG with BatchNorm."""

import mindspore as ms
from mindspore import nn

CFG = [8, 8, "M", 16, "M"]


def make_layers(cfg, in_channels=3):
    layers = []
    for v in cfg:
        if v == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers += [
                nn.Conv2d(in_channels, v, 3, pad_mode="pad", padding=1),
                nn.BatchNorm2d(v, eps=1e-3, momentum=0.9),
                nn.ReLU(),
            ]
            in_channels = v
    return nn.SequentialCell(layers)


class Net(nn.Cell):
    def __init__(self, num_classes=5):
        super().__init__()
        self.features = make_layers(CFG)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.flatten = nn.Flatten()
        self.classifier = nn.SequentialCell(
            nn.Dense(16 * 2 * 2, 24),
            nn.ReLU(),
            nn.Dense(24, num_classes),
        )

    def construct(self, x):
        x = self.features(x.astype(ms.float32))
        x = self.avgpool(x)
        x = self.flatten(x)
        return self.classifier(x)
