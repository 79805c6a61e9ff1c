from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=40, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.dense = nn.Linear(width, width)

    def forward(self, ids, attention_mask):
        hidden = self.layer(self.embed(ids), src_key_padding_mask=attention_mask == 0)
        kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * kept).sum(1) / kept.sum(1)
        return self.dense(pooled).tanh()
