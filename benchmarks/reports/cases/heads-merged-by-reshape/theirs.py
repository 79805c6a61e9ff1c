from torch import nn


class Net(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.norm(x + y)
