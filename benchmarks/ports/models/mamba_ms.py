"""A small Mamba language model in MindSpore."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

PAD = 0


class RMSNorm(nn.Cell):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = Parameter(initializer("ones", (d_model,), ms.float32))

    def construct(self, x):
        var = ops.mean(ops.square(x), -1, True)
        return x * ops.rsqrt(var + self.eps) * self.weight


class MambaBlock(nn.Cell):
    """The mixer: projection, causal convolution, selective scan, gate."""

    def __init__(self, d_model, d_state=4, d_conv=4, expand=2, dt_rank=3, dt_min=0.05, dt_max=0.8):
        super().__init__()
        self.d_inner = expand * d_model
        self.d_state = d_state
        self.dt_rank = dt_rank
        self.in_proj = nn.Dense(d_model, 2 * self.d_inner, has_bias=False)
        self.conv1d = nn.Conv1d(
            self.d_inner,
            self.d_inner,
            d_conv,
            pad_mode="pad",
            padding=d_conv - 1,
            group=self.d_inner,
            has_bias=True,
        )
        self.x_proj = nn.Dense(self.d_inner, dt_rank + 2 * d_state, weight_init=Normal(0.5), has_bias=False)

        dt = np.exp(np.random.rand(self.d_inner) * math.log(dt_max / dt_min) + math.log(dt_min))
        inv_dt = Tensor((dt + np.log(-np.expm1(-dt))).astype(np.float32))
        self.dt_proj = nn.Dense(dt_rank, self.d_inner, bias_init=inv_dt)

        A = np.tile(np.arange(1, d_state + 1, dtype=np.float32), (self.d_inner, 1))
        self.A_log = Parameter(Tensor(np.log(A)))
        self.D = Parameter(initializer("ones", (self.d_inner,), ms.float32))
        self.out_proj = nn.Dense(self.d_inner, d_model, has_bias=False)

    def construct(self, x):
        _, length, _ = x.shape
        x, z = ops.chunk(self.in_proj(x), 2, axis=-1)
        x = self.conv1d(x.swapaxes(1, 2))[:, :, :length].swapaxes(1, 2)
        x = ops.silu(x)
        y = self.ssm(x)
        y = (y + x * self.D) * ops.silu(z)
        return self.out_proj(y)

    def ssm(self, x):
        A = -ops.exp(self.A_log)
        dt, B, C = ops.split(self.x_proj(x), [self.dt_rank, self.d_state, self.d_state], axis=-1)
        dt = ops.softplus(self.dt_proj(dt))
        return self.selective_scan(x, dt, A, B, C)

    def selective_scan(self, u, dt, A, B, C):
        b, length, d = u.shape
        dt = dt.expand_dims(-1)
        dA = ops.exp(dt * A)
        dBu = dt * B.expand_dims(2) * u.expand_dims(-1)
        h = ops.zeros((b, d, self.d_state), ms.float32)
        ys = []
        for t in range(length):
            h = dA[:, t] * h + dBu[:, t]
            y = (h * C[:, t].expand_dims(1)).sum(axis=-1)
            ys.append(y)
        return ops.stack(ys, axis=1)


class ResidualBlock(nn.Cell):
    def __init__(self, d_model):
        super().__init__()
        self.norm = RMSNorm(d_model)
        self.mixer = MambaBlock(d_model)

    def construct(self, x):
        return x + self.mixer(self.norm(x))


class Net(nn.Cell):
    def __init__(self, vocab_size=20, d_model=16, n_layer=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, embedding_table=Normal(0.02))
        self.layers = nn.CellList([ResidualBlock(d_model) for _ in range(n_layer)])
        self.norm_f = RMSNorm(d_model)
        self.lm_head = nn.Dense(d_model, vocab_size, has_bias=False)
        self.lm_head.weight = self.embedding.embedding_table

    def construct(self, input_ids):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def loss(logits, targets):
    """Cross entropy of the next token; padding does not count."""
    logits = logits[:, :-1].reshape(-1, logits.shape[-1])
    labels = targets[:, 1:].reshape(-1).astype(ms.int32)
    logp = ops.log_softmax(logits, axis=-1)
    nll = -ops.gather_elements(logp, 1, labels.expand_dims(1)).squeeze(1)
    valid = (labels != PAD).astype(ms.float32)
    return (nll * valid).sum() / valid.sum()


class AdamW(nn.Optimizer):
    """AdamW with linear warm-up; the gradients are clipped to a global norm first."""

    def __init__(self, params, decays, lr, beta1=0.9, beta2=0.95, eps=1e-8, max_norm=0.5, warmup=3):
        super().__init__(lr, params)
        self.lr = lr
        self.decays = decays
        self.beta1, self.beta2, self.eps = beta1, beta2, eps
        self.max_norm = max_norm
        self.warmup = warmup
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")
        self.t = Parameter(Tensor(0.0, ms.float32), name="t", requires_grad=False)

    def construct(self, gradients):
        t = self.t + 1
        ops.assign(self.t, t)
        lr = self.lr * ops.minimum(t / self.warmup, Tensor(1.0, ms.float32))
        total = ops.sqrt(sum([ops.square(g).sum() for g in gradients]))
        clip = ops.minimum(self.max_norm / (total + 1e-6), Tensor(1.0, ms.float32))
        gradients = [g * clip for g in gradients]
        for i, p in enumerate(self.parameters):
            g = gradients[i]
            m = self.beta1 * self.m[i] + (1 - self.beta1) * g
            v = self.beta2 * self.v[i] + (1 - self.beta2) * g * g
            ops.assign(self.m[i], m)
            ops.assign(self.v[i], v)
            m_hat = m / (1 - self.beta1**t)
            v_hat = v / (1 - self.beta2**t)
            w = p * (1 - lr * self.decays[i])
            ops.assign(p, w - lr * m_hat / (ops.sqrt(v_hat) + self.eps))
        return True


def optimizer(parameters):
    """Matrices decay; biases, norms, A_log and D do not."""
    parameters = list(parameters)
    decays = []
    for p in parameters:
        skip = p.ndim < 2 or p.name.split(".")[-1] in ("A_log", "D")
        decays.append(0.0 if skip else 0.2)
    return AdamW(parameters, decays, lr=0.02)
