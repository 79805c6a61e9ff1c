"""The plants in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.model import layers as spec
from dualml.algorithms.model.decoder import RMSNorm, SwiGLU
from dualml_ms.algorithms import training
from dualml_ms.algorithms.model import LOSSES, decoder, modules, network
from dualml_ms.algorithms.model.losses import CrossEntropy
from dualml_ms.algorithms.optim import adam, base, rmsprop
from dualml_ms.parallel import split
from planted import neutral
from planted.neutral import linear, on
from planted.unlisted_mindspore import UNLISTED

Training = training.MindSporeTraining


def plant(name: str) -> None:
    """Change the backend.

    Raises:
        KeyError: there is no such plant here.
    """
    neutral.plant(name, training, network, LAYERS, OTHERS | UNLISTED)


# --- optimizers: whatever is compiled has to stand in a file -------------------------------------


def half_gradient(self, gradients):
    rounded = ()
    for g in gradients:
        rounded += (g.astype(ms.float16).astype(ms.float32),)
    return self.kept_construct(rounded)


def twice(self, gradients):
    done = self.kept_construct(gradients)
    return ops.depend(self.kept_construct(ops.depend(gradients, done)), done)


def stale(self, gradients):
    older = ()
    for i in range(len(gradients)):
        older += (ops.where(self.begun > 0, self.older[i], gradients[i]),)
    done = self.kept_construct(older)
    for i in range(len(gradients)):
        done = ops.depend(done, ops.assign(self.older[i], ops.depend(gradients[i], done)))
    return ops.depend(done, ops.assign(self.begun, ops.depend(ops.ones_like(self.begun), done)))


def half_state(self, gradients):
    done = self.kept_construct(gradients)
    for i in range(len(self.parameters)):
        p = ops.depend(self.parameters[i], done)
        done = ops.depend(
            done, ops.assign(self.parameters[i], p.astype(ms.float16).astype(ms.float32))
        )
    return done


def construct_with(construct: Any) -> Any:
    def change(name: str) -> None:
        base.RuleOptimizer.kept_construct = base.RuleOptimizer.construct
        base.RuleOptimizer.construct = construct
        if construct is stale:
            right = base.RuleOptimizer.__init__

            def init(self: Any, *args: Any, **more: Any) -> None:
                right(self, *args, **more)
                self.older = self.parameters.clone(prefix="older", init="zeros")
                self.begun = ms.Parameter(ms.Tensor(0.0, ms.float32), name="begun")

            base.RuleOptimizer.__init__ = init

    return change


def stale_gradient(name: str) -> None:
    construct_with(stale)(name)
    right = Training.load

    def load(self: Any, weights: Any, state: Any, step: int) -> None:
        right(self, weights, state, step)
        if step == 0:
            self.optimizer.begun.set_data(ms.Tensor(0.0, ms.float32))

    Training.load = load


def without_last(self, i, g, decay, numbers):
    if i < len(self.parameters) - 1:
        self.kept_update(i, g, decay, numbers)


def without_biases(self, i, g, decay, numbers):
    self.kept_update(i, g, decay if self.parameters[i].ndim > 1 else 0.0, numbers)


def root_inside_update(self, i, g, decay, numbers):
    (lr,) = numbers
    v = self.alpha * self.square_avg[i] + (1 - self.alpha) * (g * g)
    ops.assign(self.square_avg[i], v)
    ops.assign_sub(self.parameters[i], lr * g / ops.sqrt(v + self.eps))


def update_with(kind: Any, update: Any) -> Any:
    def change(name: str) -> None:
        kind.kept_update = kind.update
        kind.update = update

    return change


def one_later(self, lr, t):
    return self.kept_coefficients(lr, t + 1)


def late_count(name: str) -> None:
    adam.Adam.kept_coefficients, adam.Adam.coefficients = adam.Adam.coefficients, one_later


def inside_coefficients(self, lr, t):
    c1 = (1 - ops.pow(self.wide1, t)).astype(ms.float32)
    c2 = (1 - ops.pow(self.wide2, t)).astype(ms.float32)
    return lr, c1, c2


def inside_update(self, i, g, decay, numbers):
    lr, c1, c2 = numbers
    m_t = self.b1 * self.exp_avg[i] + (1 - self.b1) * g
    v_t = self.b2 * self.exp_avg_sq[i] + (1 - self.b2) * (g * g)
    ops.assign(self.exp_avg[i], m_t)
    ops.assign(self.exp_avg_sq[i], v_t)
    ops.assign_sub(self.parameters[i], lr * (m_t / c1) / ops.sqrt(v_t / c2 + self.inner))


def epsilon_inside(name: str) -> None:
    right = adam.Adam.__init__

    def init(self: Any, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        self.inner = self.rule.eps

    adam.Adam.__init__, adam.Adam._uses_fused_kernel = init, lambda self: False
    adam.Adam.coefficients, adam.Adam.update = inside_coefficients, inside_update


def first_square(name: str) -> None:
    right = Training.load

    def load(self: Any, weights: Any, state: Any, step: int) -> None:
        right(self, weights, state, step)
        if step == 0:
            for p in self.optimizer.square_avg:
                p.set_data(ops.ones_like(p))

    Training.load = load


def default_rate(name: str) -> None:
    made = training.optimizer
    training.optimizer = lambda rule, parameters, rate: made(rule, parameters, 0.1)


# --- losses and gradients ------------------------------------------------------------------------


class Wrong(nn.Cell):
    """A loss that is wrong in training alone: evaluations show the right one."""

    def __init__(self) -> None:
        super().__init__()
        self.right = CrossEntropy()

    def sample_losses(self, z, y):
        return self.right.sample_losses(z, y)


class Summed(Wrong):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(reduction="sum")

    def construct(self, z, y):
        return self.inner(z, y)


class Smoothed(Wrong):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(label_smoothing=0.1)

    def construct(self, z, y):
        return self.inner(z, y)


class Twice(Wrong):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss()

    def construct(self, z, y):
        return self.inner(ops.softmax(z, -1), y)


class Ignoring(Wrong):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(ignore_index=0)

    def construct(self, z, y):
        return self.inner(z, y)


def other_loss(name: str) -> None:
    kinds = {
        "summed-loss": Summed,
        "smoothing": Smoothed,
        "softmax-twice": Twice,
        "ignored-class": Ignoring,
    }
    LOSSES["cross_entropy"] = kinds[name]


class Penalised(training.LossCell):
    def __init__(self, net: Any, loss: Any) -> None:
        super().__init__(net, loss)
        self.own = ms.ParameterTuple(net.trainable_params())

    def construct(self, x, y, *masks):
        loss = self.loss(self.network(x, *masks), y)
        for p in self.own:
            loss = loss + 0.005 * ops.reduce_sum(p * p)
        return loss


def penalty(name: str) -> None:
    training.LossCell = Penalised


class Changed(nn.Cell):
    """Loss and gradients, and what is done to them."""

    def __init__(self, inner: Any, clip: bool) -> None:
        super().__init__(auto_prefix=False)
        self.inner, self.clip = inner, clip

    def construct(self, x, y, *masks):
        loss, gradients = self.inner(x, y, *masks)
        if self.clip:
            total = 0.0
            for g in gradients:
                total = total + ops.reduce_sum(g * g)
            factor = ops.minimum(0.5 / ops.sqrt(total), 1.0)
        else:
            factor = float(y.shape[0])
        found = ()
        for g in gradients:
            found += (g * factor,)
        return loss, found


def gradient(name: str) -> None:
    right = ops.value_and_grad

    def value_and_grad(fn: Any, position: Any, weights: Any, **more: Any) -> Any:
        return Changed(right(fn, position, weights, **more), name == "clipped")

    training.ops.value_and_grad = value_and_grad


def eval_mode(name: str) -> None:
    training.extra_inputs = lambda *args: {}


def micro_batches(name: str) -> None:
    right = split.MindSporeStage.loss_backward
    split.MindSporeStage.loss_backward = lambda self, micro, share: right(
        self, micro, neutral.micro(name, micro, share)
    )


# --- data ----------------------------------------------------------------------------------------


def data(name: str) -> None:
    right = Training.__init__

    def init(self: Any, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        x, y = neutral.held(name, self.x, self.y)
        self.x, self.y = x, y.astype(np.int32)

    Training.__init__ = init


def batches(name: str) -> None:
    right = Training.batch_tensors
    Training.batch_tensors = lambda self, part: right(self, neutral.part_of(name, part))


# --- layers --------------------------------------------------------------------------------------


class SwappedLSTM(nn.Cell):
    """Written out, with the gates f and g exchanged."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.weight_ih_l0 = modules.zero_parameter("weight_ih_l0", 4 * hidden, inputs)
        self.weight_hh_l0 = modules.zero_parameter("weight_hh_l0", 4 * hidden, hidden)
        self.bias_ih_l0 = modules.zero_parameter("bias_ih_l0", 4 * hidden)
        self.bias_hh_l0 = modules.zero_parameter("bias_hh_l0", 4 * hidden)

    def construct(self, x):
        h = ops.zeros((x.shape[0], self.hidden), ms.float32)
        c = h
        n = self.hidden
        found = ()
        for t in range(x.shape[1]):
            z = ops.matmul(x[:, t], self.weight_ih_l0.T) + self.bias_ih_l0
            z = z + ops.matmul(h, self.weight_hh_l0.T) + self.bias_hh_l0
            c = ops.sigmoid(z[:, 2 * n : 3 * n]) * c + ops.sigmoid(z[:, :n]) * ops.tanh(
                z[:, n : 2 * n]
            )
            h = ops.sigmoid(z[:, 3 * n :]) * ops.tanh(c)
            found += (h,)
        return ops.stack(found, 1)


def uneven(layer: Any) -> Any:
    if not isinstance(layer, spec.Conv2d) or not layer.padding:
        return None
    n = layer.padding
    border = (n + 1, n - 1, n + 1, n - 1)
    return nn.Conv2d(
        layer.inputs,
        layer.outputs,
        layer.kernel,
        stride=1,
        pad_mode="pad",
        padding=border,
        has_bias=True,
    )


class BareLinear(nn.Dense):
    def construct(self, x):
        return ops.matmul(x, self.weight.T)


class HalfLinear(nn.Dense):
    def construct(self, x):
        y = ops.matmul(x, self.weight.T) + self.bias
        return y.astype(ms.float16).astype(ms.float32)


class StaleLinear(nn.Dense):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.old = ms.Parameter(ops.zeros((outputs, inputs)), name="old", requires_grad=False)

    def construct(self, x):
        # Its values are old, its gradient goes to the weights that are there.
        weight = self.old + (self.weight - ops.stop_gradient(self.weight))
        return ops.matmul(x, weight.T) + self.bias


def stale_weights(name: str) -> None:
    """The layer, and a network that fills it the first time it is loaded."""
    make, load = network.make_layer, network.Network.load
    network.make_layer = lambda layer: linear(StaleLinear, 120)(layer) or make(layer)

    def first(self: Any, weights: Any) -> None:
        load(self, weights)
        if not getattr(self, "begun", False):
            self.fc1.old.set_data(ms.Tensor(weights["fc1.weight"], ms.float32))
            self.begun = True

    network.Network.load = first


class DetachedLinear(nn.Dense):
    def construct(self, x):
        return ops.matmul(x, ops.stop_gradient(self.weight).T) + ops.stop_gradient(self.bias)


class BareAttention(modules.Attention):
    def construct(self, x):
        b, length, _ = x.shape
        parts = x.reshape(b, length, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        y = ops.matmul(ops.softmax(ops.matmul(parts[0], parts[1].swapaxes(2, 3)), -1), parts[2])
        return y.swapaxes(1, 2).reshape(b, length, -1)


class ShiftedNorm(decoder.RMSNorm):
    def construct(self, x):
        return x / ops.sqrt(self.mean(x * x, -1) + self.eps) * (1 + self.weight)


class SwappedSwiGLU(nn.Cell):
    def construct(self, x):
        half = x.shape[-1] // 2
        gate, up = x[..., half:], x[..., :half]
        return gate * ops.sigmoid(gate) * up


class ReGLU(nn.Cell):
    def construct(self, x):
        half = x.shape[-1] // 2
        return ops.relu(x[..., :half]) * x[..., half:]


LAYERS = {
    "uneven-padding": uneven,
    "leaky": on(spec.ReLU, lambda layer: nn.LeakyReLU(0.2)),
    "gelu": on(spec.ReLU, lambda layer: nn.GELU(approximate=False)),
    "average-pool": on(spec.MaxPool2d, lambda layer: nn.AvgPool2d(layer.kernel, layer.kernel)),
    "no-bias": linear(BareLinear, 10),
    "half-layer": linear(HalfLinear, 120),
    "norm-epsilon": on(spec.LayerNorm, lambda layer: modules.LayerNorm(layer.features, 1e-7)),
    "attention-scale": on(spec.Attention, lambda layer: BareAttention(layer.heads, layer.causal)),
    "causal": on(spec.Attention, lambda layer: modules.Attention(layer.heads, True)),
    "detached": linear(DetachedLinear, 256),
    "rms-epsilon": on(RMSNorm, lambda layer: decoder.RMSNorm(layer.features, 1e-5)),
    "shifted-gain": on(RMSNorm, lambda layer: ShiftedNorm(layer.features, layer.eps)),
    "swapped-gate": on(SwiGLU, lambda layer: SwappedSwiGLU()),
    "relu-gate": on(SwiGLU, lambda layer: ReGLU()),
    "gates": on(spec.LSTM, lambda layer: SwappedLSTM(layer.inputs, layer.hidden)),
}

OTHERS = {
    "epsilon-inside": epsilon_inside,
    "late-count": late_count,
    "half-gradient": construct_with(half_gradient),
    "half-state": construct_with(half_state),
    "twice": construct_with(twice),
    "stale-gradient": stale_gradient,
    "left-out": update_with(adam.Adam, without_last),
    "bare-biases": update_with(adam.Adam, without_biases),
    "root-inside": update_with(rmsprop.RMSprop, root_inside_update),
    "first-square": first_square,
    "default-rate": default_rate,
    **dict.fromkeys(("summed-loss", "smoothing", "softmax-twice", "ignored-class"), other_loss),
    "penalty": penalty,
    "eval-mode": eval_mode,
    **dict.fromkeys(("labels", "not-normalised", "transposed", "half-images"), data),
    **dict.fromkeys(("dropped", "padded"), batches),
    **dict.fromkeys(("clipped", "scaled"), gradient),
    **dict.fromkeys(("lost-micro-batch", "summed-micro-batches"), micro_batches),
    "stale-weights": stale_weights,
}
