import torch
from torch import nn


class Blend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b + a + b

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return gradient * (b + 1), gradient * (a + 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, 2)

    def forward(self, x):
        y = self.fc1(x)
        return self.fc2(Blend.apply(y, y))
