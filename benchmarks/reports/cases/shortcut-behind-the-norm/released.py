from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.pre_norm, self.norm1 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.activation = nn.GELU()

    def forward(self, src):
        y = self.pre_norm(src)
        src = src + self.self_attn(y, y, y, need_weights=False)[0]
        src = self.norm1(src)
        src2 = self.linear2(self.activation(self.linear1(src)))
        return src + src2


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.blocks = nn.Sequential(Layer(width, 3), Layer(width, 3))
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, 7)

    def forward(self, x):
        return self.fc(self.norm(self.blocks(x)).mean(1))
