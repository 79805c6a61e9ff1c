"""A language model with segment recurrence; heads and rows of the relative scores are taken one after another."""

import mindspore as ms
from mindspore import mint, nn, ops
from mindspore import Parameter


class Vocabulary(nn.Cell):
    """One table of word vectors, made of a wide and a narrow part, for the input and for the output."""

    def __init__(self, wide, narrow, width):
        super().__init__()
        self.wide = Parameter(ops.randn(wide, width) * 0.2)
        self.wide_map = Parameter(ops.randn(width, width) * 0.3)
        self.narrow = Parameter(ops.randn(narrow, width // 2) * 0.2)
        self.narrow_map = Parameter(ops.randn(width, width // 2) * 0.3)
        self.bias = Parameter(ops.zeros(wide + narrow, ms.float32))

    def table(self):
        return ops.vstack((ops.dense(self.wide, self.wide_map), ops.dense(self.narrow, self.narrow_map)))

    def read(self, words):
        rows = self.table()
        return ops.gather(rows, words, 0) * rows.shape[1] ** 0.5

    def write(self, hidden):
        return ops.dense(hidden, self.table(), self.bias)


class Layer(nn.Cell):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.mix = nn.Dense(width, 3 * width, has_bias=False)
        self.relative = nn.Dense(width, width, has_bias=False)
        self.merge = nn.Dense(width, width, has_bias=False)
        self.expand = nn.Dense(width, inner, activation="relu")
        self.shrink = nn.Dense(inner, width)
        self.norm_a = nn.LayerNorm([width], epsilon=1e-5)
        self.norm_b = nn.LayerNorm([width], epsilon=1e-5)

    def head(self, q, k, v, r, u, s):
        """q (batch, n, size), k and v (batch, m, size), r (m, size) from far to near."""
        n, m = q.shape[1], k.shape[1]
        rows = []
        for i in range(n):
            last = m - n + i + 1
            # the i-th word sees the keys before `last`; its own key has the nearest code
            content = ops.matmul(k[:, :last], (q[:, i] + u).expand_dims(-1)).squeeze(-1)
            place = ops.matmul(q[:, i] + s, r[m - last:].swapaxes(0, 1))
            p = ops.softmax((content + place) / self.size**0.5, -1)
            rows.append((p.expand_dims(-1) * v[:, :last]).sum(axis=1))
        return ops.stack(rows, 1)

    def construct(self, x, past, codes, u, s):
        everything = x if past is None else ops.cat([past, x], 0)
        q, k, v = ops.split(self.mix(everything).swapaxes(0, 1), x.shape[-1], -1)
        q = q[:, everything.shape[0] - x.shape[0]:]
        r = self.relative(codes)
        heads = []
        for h in range(self.heads):
            cut = slice(h * self.size, (h + 1) * self.size)
            heads.append(self.head(q[..., cut], k[..., cut], v[..., cut], r[:, cut], u[h], s[h]))
        attended = self.merge(ops.cat(heads, -1)).swapaxes(0, 1)
        x = self.norm_a(attended + x)
        return self.norm_b(self.shrink(self.expand(x)) + x)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.words = Vocabulary(10, 8, 16)
        self.u = Parameter(ops.randn(2, 8) * 0.5, name="u")
        self.s = Parameter(ops.randn(2, 8) * 0.5, name="s")
        self.bottom = Layer(16, 2, 24)
        self.top = Layer(16, 2, 24)

    def codes(self, length):
        distance = ops.minimum(ops.arange(length, 0, -1).astype(ms.float32) - 1, ms.Tensor(7.0))
        angles = ops.stack([distance / 10000 ** (i / 8) for i in range(8)], 1)
        return ops.cat((mint.sin(angles), mint.cos(angles)), 1)

    def construct(self, data):
        keep_bottom, keep_top = None, None
        logits = []
        for words in ops.split(data, 4, 0):
            before = 0 if keep_bottom is None else keep_bottom.shape[0]
            codes = self.codes(before + words.shape[0])
            x = self.words.read(words)
            y = self.bottom(x, keep_bottom, codes, self.u, self.s)
            z = self.top(y, keep_top, codes, self.u, self.s)
            logits.append(self.words.write(z))
            keep_bottom = self.remember(keep_bottom, x)
            keep_top = self.remember(keep_top, y)
        return ops.cat(logits, 0)

    def remember(self, kept, new):
        new = ops.stop_gradient(new)
        if kept is not None:
            new = ops.cat([kept, new], 0)
        return new[-6:]


def loss(outputs, targets):
    total, count = 0.0, 0.0
    for b in range(outputs.shape[1]):
        score, word = outputs[:, b], targets[:, b]
        top = ops.stop_gradient(score.max(axis=-1, keepdims=True))
        log_z = ops.log(ops.exp(score - top).sum(axis=-1)) + top[:, 0]
        real = 1.0 - ops.cast(word < 3, ms.float32)  # no padding, start, unknown
        each = ops.cross_entropy(score, word, reduction="none") + 0.02 * log_z * log_z
        total = total + (each * real).sum()
        count = count + real.sum()
    return total / count


class Optimizer(nn.Optimizer):
    """LAMB; b1, b2 as usual, 4 steps of warm-up, decay of matrices only."""

    def __init__(self, parameters):
        super().__init__(0.05, parameters)
        self.first = self.parameters.clone("first", "zeros")
        self.second = self.parameters.clone("second", "zeros")
        self.t = 0

    def one(self, p, g, a, b):
        a.set_data(ops.lerp(a, g, 1 - 0.9))
        b.set_data(b * 0.999 + ops.square(g) * (1 - 0.999))
        root = ops.sqrt(b) / (1 - 0.999**self.t) ** 0.5
        return a / (root + 1e-6) / (1 - 0.9**self.t)

    def construct(self, grads):
        self.t += 1
        step = 0.0125 * min(self.t, 4)
        for p, g, a, b in zip(self.parameters, grads, self.first, self.second):
            r = self.one(p, g, a, b)
            if p.ndim == 1:
                ops.assign_sub(p, step * r)
            else:
                r += 0.5 * p
                length = float(ops.sqrt(ops.square(p).sum()))
                ops.assign_sub(p, step * min(length, 2.0) / float(ops.sqrt(ops.square(r).sum())) * r)


def optimizer(parameters):
    return Optimizer(parameters)
