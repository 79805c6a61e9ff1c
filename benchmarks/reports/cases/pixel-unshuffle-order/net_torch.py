import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=3, width=12):
        super().__init__()
        self.unshuffle = nn.PixelUnshuffle(2)
        self.head = nn.Conv2d(4 * channels, width, 3, padding=1)
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.tail = nn.Conv2d(width, 4 * channels, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, image):
        x = torch.relu(self.head(self.unshuffle(image)))
        x = x + torch.relu(self.body(x))
        return image + self.shuffle(self.tail(x))
