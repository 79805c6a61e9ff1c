"""The zoo's models as an expert writes them in plain PyTorch."""

from __future__ import annotations

import torch
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
    """`dualml.algorithms.model.zoo.vit`: one transformer block that reads an image as 28 rows."""

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
    """`dualml.algorithms.model.zoo.rnn_lm`: the logits of each next word."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.decoder = nn.Linear(128, words)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.lstm(self.embedding(tokens))[0])
        return logits.flatten(0, 1)


class Block(nn.Module):
    """Attention and two linear layers of a `GPT`, each with a norm before it and a residual
    connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        qkv = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1)
        q, k, v = (y.transpose(1, 2) for y in qkv.unbind(2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    """`dualml.algorithms.model.gpt`: the logits of each next token."""

    def __init__(
        self, words: int, length: int, width: int, blocks: int, heads: int, tied: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits.flatten(0, 1)
