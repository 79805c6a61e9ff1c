"""Transformer-XL without cells: all weights in one net, batch first, distances looked up instead of shifted."""

import numpy as np

import mindspore as ms
import mindspore.numpy as mnp
from mindspore import Parameter, Tensor, nn, ops

VOCAB, FREQUENT, WIDTH, HEADS, HEAD_WIDTH, INNER, LAYERS = 18, 10, 16, 2, 8, 24, 2
SEGMENT, MEMORY, FARTHEST = 4, 6, 7


def weight(name, *shape, std=0.1):
    return Parameter(Tensor(np.random.normal(0, std, shape).astype(np.float32)), name=name)


def constant(name, value, *shape):
    return Parameter(Tensor(np.full(shape, value, np.float32)), name=name)


def normalise(x, gain, shift):
    mean = x.mean(axis=-1, keep_dims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=-1, keep_dims=True)
    return centred * ops.rsqrt(variance + 1e-5) * gain + shift


def sinusoids():
    """Row d is the code of distance d; beyond the farthest all are alike."""
    distance = np.minimum(np.arange(SEGMENT + MEMORY), FARTHEST)[:, None]
    rate = np.exp(-np.log(10000.0) * np.arange(0, WIDTH, 2) / WIDTH)[None]
    return Tensor(np.concatenate([np.sin(distance * rate), np.cos(distance * rate)], 1).astype(np.float32))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.frequent_rows = weight("frequent_rows", FREQUENT, WIDTH, std=0.2)
        self.rare_rows = weight("rare_rows", VOCAB - FREQUENT, WIDTH // 2, std=0.2)
        self.frequent_up = weight("frequent_up", WIDTH, WIDTH, std=0.3)
        self.rare_up = weight("rare_up", WIDTH // 2, WIDTH, std=0.3)
        self.content_bias = weight("content_bias", HEADS, HEAD_WIDTH, std=0.5)
        self.position_bias = weight("position_bias", HEADS, HEAD_WIDTH, std=0.5)
        self.word_bias = constant("word_bias", 0, VOCAB)
        for i in range(LAYERS):
            setattr(self, f"query_key_value{i}", weight(f"query_key_value{i}", WIDTH, 3 * HEADS * HEAD_WIDTH))
            for n in ("distance", "output"):
                setattr(self, f"{n}{i}", weight(f"{n}{i}", WIDTH, HEADS * HEAD_WIDTH))
            setattr(self, f"up{i}", weight(f"up{i}", WIDTH, INNER))
            setattr(self, f"up_bias{i}", constant(f"up_bias{i}", 0, INNER))
            setattr(self, f"down{i}", weight(f"down{i}", INNER, WIDTH))
            setattr(self, f"down_bias{i}", constant(f"down_bias{i}", 0, WIDTH))
            for n in ("first", "second"):
                setattr(self, f"{n}_gain{i}", constant(f"{n}_gain{i}", 1, WIDTH))
                setattr(self, f"{n}_shift{i}", constant(f"{n}_shift{i}", 0, WIDTH))
        self.codes = sinusoids()

    def part(self, name, i):
        return getattr(self, f"{name}{i}")

    def embed(self, ids):
        one_hot = ops.one_hot(ids, VOCAB, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        low = ops.matmul(ops.matmul(one_hot[..., :FREQUENT], self.frequent_rows), self.frequent_up)
        high = ops.matmul(ops.matmul(one_hot[..., FREQUENT:], self.rare_rows), self.rare_up)
        return 4.0 * (low + high)

    def heads(self, x, w):
        """(batch, length, width) to (batch, heads, length, head width)."""
        y = ops.matmul(x, w)
        return y.reshape(y.shape[0], y.shape[1], HEADS, HEAD_WIDTH).swapaxes(1, 2)

    def layer(self, i, x, memory):
        batch, length = x.shape[:2]
        seen = ops.concat((memory, x), 1) if memory is not None else x
        total = seen.shape[1]
        before = total - length
        w = self.part("query_key_value", i)
        q = self.heads(x, w[:, :WIDTH])
        k = self.heads(seen, w[:, WIDTH:2 * WIDTH])
        v = self.heads(seen, w[:, 2 * WIDTH:])
        # distance of query a from key b; keys to the right are forbidden
        gap = np.arange(length)[:, None] + before - np.arange(total)[None]
        index = np.broadcast_to(np.maximum(gap, 0), (batch, HEADS, length, total)).astype(np.int32)
        forbidden = Tensor(np.where(gap < 0, -1e9, 0.0).astype(np.float32))
        d = self.heads(self.codes[None, :total], self.part("distance", i))
        to_keys = ops.matmul(q + self.content_bias.expand_dims(1), k.swapaxes(2, 3))
        to_distances = ops.matmul(q + self.position_bias.expand_dims(1), d.swapaxes(2, 3))
        scores = (to_keys + ops.gather_elements(to_distances, 3, Tensor(index))) / HEAD_WIDTH**0.5 + forbidden
        scores = ops.exp(scores - ops.stop_gradient(scores.max(axis=-1, keepdims=True)))
        share = scores / scores.sum(axis=-1, keepdims=True)
        y = ops.matmul(share, v).swapaxes(1, 2).reshape(batch, length, HEADS * HEAD_WIDTH)
        x = normalise(x + ops.matmul(y, self.part("output", i)), self.part("first_gain", i), self.part("first_shift", i))
        y = ops.maximum(ops.matmul(x, self.part("up", i)) + self.part("up_bias", i), 0.0)
        y = ops.matmul(y, self.part("down", i)) + self.part("down_bias", i)
        return normalise(x + y, self.part("second_gain", i), self.part("second_shift", i))

    def construct(self, data):
        text = data.T
        past = [None, None]
        pieces = []
        for start in range(0, text.shape[1], SEGMENT):
            x = self.embed(text[:, start:start + SEGMENT])
            for i in range(LAYERS):
                memory, entering = past[i], ops.stop_gradient(x)
                past[i] = (entering if memory is None else ops.concat((memory, entering), 1))[:, -MEMORY:]
                x = self.layer(i, x, memory)
            low = ops.matmul(ops.matmul(x, self.frequent_up.T), self.frequent_rows.T)
            high = ops.matmul(ops.matmul(x, self.rare_up.T), self.rare_rows.T)
            pieces.append(ops.concat((low, high), -1) + self.word_bias)
        return ops.concat(pieces, 1).swapaxes(0, 1)


def loss(outputs, targets):
    """Mean over the real words of -log p + 0.02 (log Z)^2."""
    log_p = ops.log_softmax(outputs, -1)
    hot = mnp.arange(VOCAB).reshape(1, 1, -1) == targets.expand_dims(-1)
    minus = -ops.where(hot, log_p, ops.zeros_like(log_p)).sum(axis=-1)
    log_z = (outputs - log_p).mean(axis=-1)
    counted = ops.where(targets > 2, minus + 0.02 * log_z**2, ops.zeros_like(minus))
    return counted.sum() / (targets > 2).astype(ms.float32).sum()


class LayerwiseAdam(nn.Optimizer):
    """LAMB: moments as debiased by rates that depend on the step."""

    def __init__(self, weights):
        super().__init__(0.05, weights)
        self.moments = [(ops.zeros_like(w), ops.zeros_like(w)) for w in self.parameters]
        self.steps = 0

    def construct(self, gradients):
        self.steps += 1
        t = self.steps
        rate = 0.05 * t / 4 if t < 4 else 0.05
        moments = []
        for w, g, (m, v) in zip(self.parameters, gradients, self.moments):
            m = m + 0.1 * (g - m)
            v = v + 0.001 * (g * g - v)
            moments.append((m, v))
            move = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-6)
            if len(w.shape) >= 2:
                move = move + 0.5 * w
                size = ops.minimum(ops.sqrt((w * w).sum()), Tensor(2.0, ms.float32))
                move = move * (size / ops.sqrt((move * move).sum()))
            w.set_data(w - rate * move)
        self.moments = moments
        return gradients


def optimizer(parameters):
    return LayerwiseAdam(parameters)
