"""A small BERT classifier from MindSpore's own encoder layers."""

from mindspore import nn, ops


class Embeddings(nn.Cell):
    """The sum of three embeddings, normed."""

    def __init__(self, vocab, d, max_len):
        super().__init__()
        self.word = nn.Embedding(vocab, d)
        self.position = nn.Embedding(max_len, d)
        self.segment = nn.Embedding(2, d)
        self.norm = nn.LayerNorm((d,), epsilon=1e-12)

    def construct(self, ids, segments):
        positions = ops.arange(ids.shape[1])
        return self.norm(self.word(ids) + self.position(positions) + self.segment(segments))


class Net(nn.Cell):
    """Embeddings, nn.TransformerEncoder, pooler, classifier."""

    def __init__(self, vocab=30, d=16, heads=4, ff=32, layers=2, max_len=12, classes=3):
        super().__init__()
        self.embeddings = Embeddings(vocab, d, max_len)
        layer = nn.TransformerEncoderLayer(
            d, heads, ff, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.SequentialCell(nn.Dense(d, d), nn.Tanh())
        self.classifier = nn.Dense(d, classes)

    def construct(self, ids, segments, lengths):
        x = self.embeddings(ids, segments)
        padded = ops.arange(ids.shape[1])[None, :] >= lengths[:, None] + 3
        x = self.encoder(x, src_key_padding_mask=padded)
        return self.classifier(self.pooler(x[:, 0]))
