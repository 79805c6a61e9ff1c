from torch import nn
from torch.nn.utils import weight_norm


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(4, width, 7, padding=3))
        self.up = weight_norm(nn.ConvTranspose1d(width, width // 2, 4, 2, padding=1))
        self.conv_post = weight_norm(nn.Conv1d(width // 2, 1, 7, padding=3))

    def forward(self, mel):
        x = self.up(nn.functional.leaky_relu(self.conv_pre(mel), 0.1))
        return self.conv_post(nn.functional.leaky_relu(x, 0.1)).tanh()
