"""A small BERT classifier from PyTorch's own encoder layers."""

import torch
from torch import nn


class Net(nn.Module):
    """Token, position and segment embeddings, two encoder layers, pooler, classifier."""

    def __init__(self, vocab=30, d=16, heads=4, ff=32, layers=2, max_len=12, classes=3):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, d)
        self.position_embeddings = nn.Embedding(max_len, d)
        self.token_type_embeddings = nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=1e-12)
        layer = nn.TransformerEncoderLayer(
            d, heads, ff, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(d, d)
        self.classifier = nn.Linear(d, classes)
        for table in (self.word_embeddings, self.position_embeddings, self.token_type_embeddings):
            nn.init.normal_(table.weight, std=0.02)
        for p in self.encoder.parameters():
            if p.dim() > 1:
                nn.init.xavier_normal_(p, gain=2.0)

    def forward(self, ids, segments, lengths):
        b, t = ids.shape
        positions = torch.arange(t, device=ids.device)
        x = self.word_embeddings(ids) + self.position_embeddings(positions)
        x = self.norm(x + self.token_type_embeddings(segments))
        padded = positions[None, :] >= lengths[:, None] + 3
        x = self.encoder(x, src_key_padding_mask=padded)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))
