"""A small GPT as functions over a plain list of Parameters."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, mint, nn, ops


def layer_norm(x, weight, bias, eps=1e-5):
    """Layer norm over the last axis."""
    mean = mint.mean(x, -1, True)
    var = mint.mean(mint.square(x - mean), -1, True)
    return (x - mean) * mint.rsqrt(var + eps) * weight + bias


def gelu_tanh(x):
    """GELU's tanh approximation by a sigmoid, as (1 + tanh(z)) / 2 = sigmoid(2 z)."""
    return x * mint.sigmoid(np.sqrt(8 / np.pi).item() * (x + 0.044715 * x * x * x))


def attention(x, w_qkv, w_out, b_out, heads):
    """Causal self-attention, a loop over the heads."""
    t, d = x.shape[1:]
    size = d // heads
    q, k, v = mint.chunk(mint.matmul(x, w_qkv.T), 3, -1)
    bias = Tensor(np.triu(np.full((t, t), -1e9, np.float32), 1))
    heads_out = []
    for i in range(heads):
        part = slice(i * size, (i + 1) * size)
        score = mint.matmul(q[..., part], k[..., part].swapaxes(1, 2)) * size**-0.5
        heads_out.append(mint.matmul(mint.softmax(score + bias, -1), v[..., part]))
    return mint.nn.functional.linear(mint.cat(heads_out, -1), w_out, b_out)


class Net(nn.Cell):
    """All weights in the order of PyTorch's parameters()."""

    def __init__(self, vocab=6, block_size=10, d=16, heads=2, layers=2):
        super().__init__()
        self.heads = heads
        shapes = [("wte", (vocab, d)), ("wpe", (block_size, d))]
        for i in range(layers):
            shapes += [
                (f"h{i}_{n}", s)
                for n, s in (
                    ("n1_w", (d,)),
                    ("n1_b", (d,)),
                    ("qkv", (3 * d, d)),
                    ("o_w", (d, d)),
                    ("o_b", (d,)),
                    ("n2_w", (d,)),
                    ("n2_b", (d,)),
                    ("up_w", (4 * d, d)),
                    ("up_b", (4 * d,)),
                    ("down_w", (d, 4 * d)),
                    ("down_b", (d,)),
                )
            ]
        shapes += [("n_w", (d,)), ("n_b", (d,))]
        rng = np.random.default_rng(0)
        self.weights = ParameterTuple(
            [
                Parameter(Tensor(rng.normal(0, 0.02, s).astype(np.float32)), name=n)
                for n, s in shapes
            ]
        )

    def construct(self, ids):
        w = self.weights
        x = w[0][ids] + w[1][: ids.shape[1]]
        for i in range(2, len(w) - 2, 11):
            n1w, n1b, qkv, ow, ob, n2w, n2b, uw, ub, dw, db = w[i : i + 11]
            x = x + attention(layer_norm(x, n1w, n1b), qkv, ow, ob, self.heads)
            hidden = gelu_tanh(mint.nn.functional.linear(layer_norm(x, n2w, n2b), uw, ub))
            x = x + mint.nn.functional.linear(hidden, dw, db)
        return mint.matmul(layer_norm(x, w[-2], w[-1]), w[0].T)


def loss(logits, targets):
    """The mean negative log-likelihood of the tokens that are not padding."""
    labels = targets.reshape(-1, 1).astype(ms.int32)
    logp = ops.log_softmax(logits.reshape(-1, logits.shape[-1]), -1)
    keep = (labels != 0).astype(ms.float32)
    return -(ops.gather_elements(logp, 1, labels) * keep).sum() / keep.sum()


class Warm(nn.learning_rate_schedule.LearningRateSchedule):
    """Linear warm-up, the first step above zero."""

    def __init__(self, lr, steps):
        super().__init__()
        self.lr, self.steps = lr, steps

    def construct(self, global_step):
        return self.lr * ops.minimum((global_step + 1).astype(ms.float32) / self.steps, 1.0)


class AdamW(nn.Optimizer):
    """AdamW over MindSpore's parameter groups."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(lr, groups)
        self.betas, self.eps, self.n = betas, eps, 0
        self.moments = [[0.0, 0.0] for _ in self.parameters]
        self.decays = [g["weight_decay"] for g in groups for _ in g["params"]]

    def construct(self, gradients):
        lr = self.get_lr()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        self.n += 1
        b1, b2 = self.betas
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            m, v = self.moments[i]
            self.moments[i] = m, v = [b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * ops.square(g)]
            step = m / (1 - b1**self.n) / (ops.sqrt(v / (1 - b2**self.n)) + self.eps)
            ops.assign(p, p - lr * (step + self.decays[i] * p))
        return True


def optimizer(parameters):
    """Matrices with decay, vectors without."""
    groups = [
        {"params": [p for p in parameters if len(p.shape) > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if len(p.shape) == 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, Warm(1e-2, 4), (0.9, 0.95), 1e-6)
