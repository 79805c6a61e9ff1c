import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs=6, hidden=10, classes=4):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        _, (h_n, _) = self.lstm(x)
        return self.fc(torch.cat([h_n[-2], h_n[-1]], 1))
