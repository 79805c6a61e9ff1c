"""An LSTM tagger with padded sentences; clipped SGD."""

import mindspore as ms
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, vocab=15, embed=8, hidden=10, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed, padding_idx=0)
        self.lstm = nn.LSTM(embed, hidden, num_layers=2, batch_first=True)
        self.hidden2tag = nn.Dense(hidden, tags)

    def embed(self, sentence):
        e = self.embedding(sentence)
        # the row of the padding is not trained
        return ops.where((sentence != 0).expand_dims(-1), e, ops.stop_gradient(e))

    def construct(self, sentence, features):
        embeds = self.embed(sentence) + features
        lstm_out, _ = self.lstm(embeds)
        lstm_out = lstm_out * (sentence != 0).expand_dims(-1).astype(ms.float32)
        return self.hidden2tag(lstm_out)


def loss(outputs, targets):
    """Mean over the tokens; tag 0 is padding."""
    scores = ops.log_softmax(outputs, axis=-1)
    mask = (targets != 0).astype(ms.float32)
    index = targets.expand_dims(-1).astype(ms.int32)
    picked = ops.gather_elements(scores, -1, index).squeeze(-1)
    return -(picked * mask).sum() / mask.sum()


class ClippedSGD(nn.Optimizer):
    """SGD that clips the norm of all gradients together."""

    def construct(self, gradients):
        gradients = ops.clip_by_global_norm(gradients, 0.1)
        for p, g in zip(self.parameters, gradients):
            ops.assign(p, p - self.get_lr() * g)
        return True


def optimizer(parameters):
    return ClippedSGD(1.0, parameters)
