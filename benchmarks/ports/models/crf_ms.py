"""Slots by a linear-chain CRF and the intent of the sentence, learned together."""

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import Normal, initializer


class CRF(nn.Cell):
    """Scores of tag sequences and the logarithm of their sum over all sequences."""

    def __init__(self, tags):
        super().__init__()
        self.start = Parameter(initializer(Normal(0.7), (tags,)))
        self.end = Parameter(initializer(Normal(0.7), (tags,)))
        self.transitions = Parameter(initializer(Normal(0.7), (tags, tags)))

    def score(self, emissions, tags, mask):
        n = self.end.shape[0]
        last = mask.sum(axis=1).astype(ms.int32) - 1
        each = ops.gather_elements(emissions, 2, tags.expand_dims(-1)).squeeze(-1)
        before, after = tags[:, :-1], tags[:, 1:]
        steps = self.transitions.reshape(-1)[before * n + after]
        total = self.start[tags[:, 0]] + (each * mask).sum(axis=1)
        total = total + (steps * mask[:, 1:]).sum(axis=1)
        final = ops.gather_elements(tags, 1, last.expand_dims(1)).squeeze(1)
        return total + self.end[final]

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for i in range(1, emissions.shape[1]):
            scores = alpha.expand_dims(2) + self.transitions + emissions[:, i].expand_dims(1)
            new = ops.logsumexp(scores, 1)
            alpha = ops.where(mask[:, i : i + 1] > 0, new, alpha)
        return ops.logsumexp(alpha + self.end, 1)


class Net(nn.Cell):
    """Outputs the score of the tags, the log partition and the intent's logits."""

    def __init__(self, words=20, d=8, hidden=12, tags=5, intents=4):
        super().__init__()
        self.embed = nn.Embedding(words, d)
        self.conv = nn.Conv1d(d, hidden, 3, pad_mode="pad", padding=1, has_bias=True)
        self.emit = nn.Dense(hidden, tags)
        self.intent = nn.Dense(hidden, intents)
        self.crf = CRF(tags)

    def construct(self, words, lengths, tags):
        tags = tags.astype(ms.int32)
        mask = ops.arange(words.shape[1]).expand_dims(0) < lengths.expand_dims(1)
        mask = mask.astype(ms.float32)
        x = self.embed(words) * mask.expand_dims(-1)
        h = ops.tanh(self.conv(x.swapaxes(1, 2))).swapaxes(1, 2)
        emissions = self.emit(h)
        pooled = (h * mask.expand_dims(-1)).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        score = self.crf.score(emissions, tags, mask)
        partition = self.crf.partition(emissions, mask)
        return score, partition, self.intent(pooled)


def loss(outputs, targets):
    """Mean negative log likelihood of the tags, and half the intent's cross entropy."""
    score, partition, intent = outputs
    nll = (partition - score).mean()
    return nll + 0.5 * ops.cross_entropy(intent, targets.astype(ms.int32))


class LAMB(nn.Optimizer):
    """Adam's step with decay, as long as the weights of its tensor times the rate."""

    def __init__(self, parameters, lr, beta1=0.9, beta2=0.99, eps=1e-6, decay=0.1, limit=10.0):
        super().__init__(lr, parameters)
        self.lr, self.beta1, self.beta2 = lr, beta1, beta2
        self.eps, self.decay, self.limit = eps, decay, limit
        self.count = 0
        self.m = self._parameters.clone(prefix="m", init="zeros")
        self.v = self._parameters.clone(prefix="v", init="zeros")

    def trust(self, p, update):
        length = min(float(ops.norm(p)), self.limit)
        size = float(ops.norm(update))
        return length / size if length > 0 and size > 0 else 1.0

    def construct(self, gradients):
        self.count += 1
        for p, g, m, v in zip(self._parameters, gradients, self.m, self.v):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * ops.square(g))
            mean = m / (1 - self.beta1**self.count)
            square = v / (1 - self.beta2**self.count)
            update = mean / (ops.sqrt(square) + self.eps)
            update = update + self.decay * p
            ops.assign(p, p - self.lr * self.trust(p, update) * update)
        return True


def optimizer(parameters):
    return LAMB(parameters, lr=0.1)
