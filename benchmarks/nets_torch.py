"""The zoo's models as an expert writes them in plain PyTorch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.Tanh(),
        nn.Linear(256, 128),
        nn.Tanh(),
        nn.Linear(128, 10),
    )


class Transformer(nn.Module):
    """`dualml.model.zoo.vit`: one block that reads an image as 28 rows."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed, self.position = nn.Linear(28, width), nn.Embedding(28, width)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.squeeze(1)) + self.position.weight
        qkv = self.qkv(self.ln1(x)).unflatten(2, (3, self.heads, -1))
        y = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        x = x + self.down(functional.relu(self.up(self.ln2(x))))
        logits: Tensor = self.head(self.ln3(x).mean(1))
        return logits


class LanguageModel(nn.Module):
    """`dualml.model.zoo.rnn_lm`: the logits of the word after each."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.decoder = nn.Linear(128, words)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.lstm(self.embedding(tokens))[0])
        return logits.flatten(0, 1)
