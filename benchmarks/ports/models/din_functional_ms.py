"""DIN in functions: the activation unit's first layer applied in pieces, the interactions pair by pair."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops


def uniform(name, *shape):
    return Parameter(Tensor(np.random.uniform(-0.2, 0.2, shape), ms.float32), name=name)


def constant(name, size, value, train=True):
    return Parameter(Tensor(np.full(size, value), ms.float32), name=name, requires_grad=train)


def look_up(table, ids):
    keep = (ids != 0).astype(ms.float32).expand_dims(-1)
    return ops.gather(table, ids, 0) * keep


def linear(x, w, b):
    return ops.matmul(x, w.T) + b


class Net(nn.Cell):
    def __init__(self, n_users=12, n_items=10, n_cates=6, k=8):
        super().__init__()
        self.k = k
        self.users = uniform("users", n_users, k)
        self.items = uniform("items", n_items, k)
        self.cates = uniform("cates", n_cates, k)
        self.att_w1, self.att_b1 = uniform("att_w1", 16, 8 * k), uniform("att_b1", 16)
        self.att_alpha = constant("att_alpha", 16, 0.25)
        self.att_mean, self.att_var = constant("att_mean", 16, 0, False), constant("att_var", 16, 1, False)
        self.att_w2, self.att_b2 = uniform("att_w2", 8, 16), uniform("att_b2", 8)
        self.att_slope = constant("att_slope", 8, 0.25)
        self.att_w3, self.att_b3 = uniform("att_w3", 1, 8), uniform("att_b3", 1)
        self.w1, self.b1 = uniform("w1", 24, 7 * k), uniform("b1", 24)
        self.alpha1 = constant("alpha1", 24, 0.25)
        self.mean1, self.var1 = constant("mean1", 24, 0, False), constant("var1", 24, 1, False)
        self.w2, self.b2 = uniform("w2", 12, 24), uniform("b2", 12)
        self.alpha2 = constant("alpha2", 12, 0.25)
        self.mean2, self.var2 = constant("mean2", 12, 0, False), constant("var2", 12, 1, False)
        self.w3, self.b3 = uniform("w3", 1, 12), uniform("b3", 1)

    def dice(self, x, alpha, mean, var):
        axes = tuple(range(x.ndim - 1))
        if self.training:
            n = x.size // x.shape[-1]
            mu = x.mean(axis=axes)
            sigma2 = (x * x).mean(axis=axes) - mu * mu
            mean.set_data(ops.stop_gradient(mean + 0.1 * (mu - mean)))
            var.set_data(ops.stop_gradient(var + 0.1 * (sigma2 * n / (n - 1) - var)))
        else:
            mu, sigma2 = mean, var
        gate = 1 / (1 + ops.exp(-(x - mu) / ops.sqrt(sigma2 + 1e-5)))
        return x * (alpha + gate * (1 - alpha))

    def attention(self, q, keys, length):
        d = 2 * self.k
        w_q, w_k, w_diff, w_prod = [self.att_w1[:, i * d : (i + 1) * d] for i in range(4)]
        # [q, k, q - k, q * k] w  =  q (w_q + w_diff) + k (w_k - w_diff) + (q * k) w_prod
        from_query = ops.matmul(q, (w_q + w_diff).T).expand_dims(1)
        from_keys = ops.matmul(keys, (w_k - w_diff).T)
        both = ops.matmul(keys * q.expand_dims(1), w_prod.T)
        h = from_query + from_keys + both + self.att_b1
        h = linear(self.dice(h, self.att_alpha, self.att_mean, self.att_var), self.att_w2, self.att_b2)
        h = ops.maximum(h, ops.zeros_like(h)) + self.att_slope * ops.minimum(h, ops.zeros_like(h))
        score = linear(h, self.att_w3, self.att_b3)
        valid = ops.stack([(length > t).astype(ms.float32) for t in range(keys.shape[1])], axis=1)
        return (score * valid.expand_dims(-1) * keys).sum(axis=1)

    def construct(self, user, item, cate, past_items, past_cates, length):
        u, i, c = look_up(self.users, user), look_up(self.items, item), look_up(self.cates, cate)
        q = ops.concat((i, c), 1)
        keys = ops.concat((look_up(self.items, past_items), look_up(self.cates, past_cates)), 2)
        interest = self.attention(q, keys, length)

        x = ops.concat((u, q, interest, q * interest), 1)
        x = self.dice(linear(x, self.w1, self.b1), self.alpha1, self.mean1, self.var1)
        x = self.dice(linear(x, self.w2, self.b2), self.alpha2, self.mean2, self.var2)
        logit = linear(x, self.w3, self.b3)[:, 0]

        fields = [u, i, c, interest[:, : self.k], interest[:, self.k :]]
        for a in range(len(fields)):
            for b in range(a + 1, len(fields)):
                logit = logit + (fields[a] * fields[b]).sum(axis=1)
        return logit, ops.concat((u, i, c), 1)


def loss(outputs, targets):
    logit, rows = outputs
    click = targets.astype(ms.float32)
    # softplus(-x) for a click, softplus(x) for none
    entropy = 2.0 * click * ops.softplus(-logit) + (1 - click) * ops.softplus(logit)
    return (entropy.sum() + 0.01 * (rows * rows).sum()) / logit.shape[0]


class Adagrad(nn.Optimizer):
    def __init__(self, params):
        super().__init__(0.05, params)
        self.squares = ParameterTuple([Parameter(ops.full_like(p, 0.1), name="squares." + p.name) for p in params])
        self.steps_done = 0

    def construct(self, grads):
        lr = 0.05 / (1 + 0.2 * self.steps_done)
        for w, g, s in zip(self.parameters, grads, self.squares):
            s.set_data(s + ops.pow(g, 2))
            rate = lr * ops.rsqrt(s)
            moved = w - rate * g
            soft = moved - ops.clamp(moved, -rate * 2e-3, rate * 2e-3)
            w.set_data(soft / (1 + 1e-2 * rate))
        self.steps_done += 1
        return True


def optimizer(parameters):
    return Adagrad(list(parameters))
