"""Hourglass keypoint network as functions of a table of weights; pooling, upsampling and batch norm written out."""

import numpy as np

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

JOINTS, C, STEM = 6, 12, 8
EPS, KEEP = 1e-5, 0.9


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.add_conv("stem", 3, STEM, 3)
        self.add_norm("stem", STEM)
        self.add_block("entry", STEM, C)
        self.add_conv("entry_short", STEM, C, 1)
        for scale in ("full", "half"):
            self.add_block(f"{scale}_skip", C, C)
            self.add_block(f"{scale}_down", C, C)
        self.add_block("bottom", C, C)
        self.add_block("between", C, C)
        for head in ("draft", "final"):
            self.add_conv(f"{head}_mix", C, C, 1)
            self.add_norm(f"{head}_mix", C)
            self.add_conv(f"{head}_maps", C, JOINTS, 1)
            self.add(f"{head}_maps_b", np.zeros(JOINTS))
        self.add_conv("back_features", C, C, 1)
        self.add_conv("back_maps", JOINTS, C, 1)

    def add(self, name, value, trained=True):
        setattr(self, name, Parameter(Tensor(value.astype(np.float32)), name=name, requires_grad=trained))

    def add_conv(self, name, c_in, c_out, k):
        bound = (c_in * k * k) ** -0.5
        self.add(f"{name}_w", np.random.uniform(-bound, bound, (c_out, c_in, k, k)))

    def add_norm(self, name, c):
        self.add(f"{name}_gain", np.ones(c))
        self.add(f"{name}_shift", np.zeros(c))
        self.add(f"{name}_mean", np.zeros(c), False)
        self.add(f"{name}_var", np.ones(c), False)

    def add_block(self, name, c_in, c_out):
        self.add_norm(f"{name}_1", c_in)
        self.add_conv(f"{name}_1", c_in, c_out, 3)
        self.add_norm(f"{name}_2", c_out)
        self.add_conv(f"{name}_2", c_out, c_out, 3)

    def get(self, name):
        return getattr(self, name)

    def conv(self, name, x, stride=1):
        w = self.get(f"{name}_w")
        return ops.conv2d(x, w, stride=stride, pad_mode="pad", padding=w.shape[-1] // 2)

    def norm_relu(self, name, x):
        mean, var = self.get(f"{name}_mean"), self.get(f"{name}_var")
        if self.training:
            count = x.size // x.shape[1]
            m = x.mean(axis=(0, 2, 3))
            d = x - m.reshape(1, -1, 1, 1)
            v = (d * d).mean(axis=(0, 2, 3))
            ops.assign(mean, ops.stop_gradient(KEEP * mean + (1 - KEEP) * m))
            ops.assign(var, ops.stop_gradient(KEEP * var + (1 - KEEP) * v * (count / (count - 1))))
        else:
            d = x - mean.reshape(1, -1, 1, 1)
            v = var
        factor = self.get(f"{name}_gain") / ops.sqrt(v + EPS)
        return ops.relu(d * factor.reshape(1, -1, 1, 1) + self.get(f"{name}_shift").reshape(1, -1, 1, 1))

    def block(self, name, x):
        y = self.conv(f"{name}_1", self.norm_relu(f"{name}_1", x))
        return self.conv(f"{name}_2", self.norm_relu(f"{name}_2", y))

    def head(self, name, x):
        f = self.norm_relu(f"{name}_mix", self.conv(f"{name}_mix", x))
        return f, self.conv(f"{name}_maps", f) + self.get(f"{name}_maps_b").reshape(1, -1, 1, 1)

    def construct(self, images):
        x = self.norm_relu("stem", self.conv("stem", images, 2))
        x = self.conv("entry_short", x) + self.block("entry", x)
        kept, y = [], x
        for scale in ("full", "half"):
            kept.append(y + self.block(f"{scale}_skip", y))
            y = halve(y)
            y = y + self.block(f"{scale}_down", y)
        y = y + self.block("bottom", y)
        while kept:
            y = kept.pop() + double(y)
        f, draft = self.head("draft", y)
        x = x + (self.conv("back_features", f) + self.conv("back_maps", draft))
        x = x + self.block("between", x)
        final = self.head("final", x)[1]
        return draft, final, places(final)


def halve(x):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // 2, 2, w // 2, 2)
    return x.max(axis=5).max(axis=3)


def double(x):
    return ops.repeat_interleave(ops.repeat_interleave(x, 2, 2), 2, 3)


def places(maps, sharpness=4.0):
    b, j, h, w = maps.shape
    logits = sharpness * maps.reshape(b, j, h * w)
    logits = logits - ops.stop_gradient(logits.max(axis=-1, keepdims=True))
    e = ops.exp(logits)
    p = e / e.sum(axis=-1, keepdims=True)
    index = np.arange(h * w)
    grid = np.stack([index % w / (w - 1), index // w / (h - 1)], 1) * 2 - 1
    return ops.matmul(p, Tensor(grid.astype(np.float32)))


def loss(outputs, targets):
    """Two heatmap terms, the second over the three hardest joints, and a coordinate term."""
    draft, final, coords = outputs
    t = targets.astype(ms.float32)
    x, y, confidence = t[..., 0] * 0.5, t[..., 1] * 0.5, t[..., 2]
    weight = (confidence >= 8).astype(ms.float32) * confidence / 31.0
    cells = Tensor(np.arange(16), ms.float32)
    gx = ops.exp(-((x.expand_dims(-1) - cells) ** 2) / 4.5)
    gy = ops.exp(-((y.expand_dims(-1) - cells) ** 2) / 4.5)
    truth = gy.expand_dims(3) * gx.expand_dims(2)
    first = weight * ((draft - truth) ** 2).mean(axis=-1).mean(axis=-1)
    second = weight * ((final - truth) ** 2).mean(axis=-1).mean(axis=-1)
    ordered = ops.sort(second, axis=1, descending=True)[0]
    miss = ops.abs(coords - (ops.stack((x, y), -1) * (2 / 15) - 1))
    miss = ops.where(miss < 0.2, miss * miss / 0.4, miss - 0.1)
    near = (miss * weight.expand_dims(-1)).sum() / (weight.sum() + 1e-6)
    return first.mean() + ordered[:, :3].mean() + near / 4


class RMSprop(nn.Optimizer):
    """Centred RMSprop with momentum; state lives in plain lists."""

    def __init__(self, weights):
        super().__init__(2e-3, weights)
        zeros = [ops.zeros_like(w) for w in self.parameters]
        self.power, self.average, self.speed = list(zeros), list(zeros), list(zeros)

    def construct(self, gradients):
        for i, w in enumerate(self.parameters):
            g = gradients[i] + 1e-3 * w
            self.power[i] = 0.9 * self.power[i] + 0.1 * g**2
            self.average[i] = 0.9 * self.average[i] + 0.1 * g
            deviation = (self.power[i] - self.average[i] ** 2) ** 0.5
            self.speed[i] = 0.9 * self.speed[i] + g / (deviation + 1e-3)
            w.set_data(w - 2e-3 * self.speed[i])


def optimizer(parameters):
    return RMSprop(parameters)
