import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs=6, hidden=10, classes=4):
        super().__init__()
        self.rnn = nn.GRU(inputs, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])
