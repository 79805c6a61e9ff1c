"""The plants in PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dualml.algorithms.model import layers as spec
from dualml.algorithms.model.decoder import RMSNorm, SwiGLU
from dualml.algorithms.optim import LRSchedule
from dualml_torch.algorithms import training
from dualml_torch.algorithms.model import LOSSES, decoder, modules, network, recurrent
from dualml_torch.algorithms.optim import adam, base, rmsprop
from dualml_torch.algorithms.optim.foreach import foreach_mul_
from dualml_torch.parallel import split
from planted import neutral
from planted.neutral import linear, on
from planted.unlisted_torch import UNLISTED

Training = training.TorchTraining


def plant(name: str) -> None:
    """Change the backend.

    Raises:
        KeyError: there is no such plant here.
    """
    neutral.plant(name, training, network, LAYERS, OTHERS | UNLISTED)


def update_with(before: Any) -> Any:
    """``before(training)`` ahead of every update."""

    def change(name: str) -> None:
        right = Training.update

        def update(self: Any, step: int) -> None:
            before(self)
            right(self, step)

        Training.update = update

    return change


def half_gradient(self: Any) -> None:
    for p in self.parameters.values():
        p.grad = p.grad.half().float()


def stale(self: Any) -> None:
    own = [p.grad.clone() for p in self.parameters.values()]
    for p, old in zip(self.parameters.values(), getattr(self, "kept", own), strict=True):
        p.grad = old
    self.kept = own


def stale_gradient(name: str) -> None:
    update_with(stale)(name)
    right = Training.load

    def load(self: Any, weights: Any, state: Any, step: int) -> None:
        right(self, weights, state, step)
        if step == 0 and hasattr(self, "kept"):
            del self.kept

    Training.load = load


def default_rate(self: Any) -> None:
    self.optimizer.param_groups[0]["lr"] = 0.1


def set_rate(name: str) -> None:
    right = Training.update

    def update(self: Any, step: int) -> None:
        kept, self.recipe = self.recipe, replace(self.recipe, schedule=LRSchedule())
        default_rate(self)
        right(self, step)
        self.recipe = kept

    Training.update = update


def after_update(name: str) -> None:
    right = Training.update

    def update(self: Any, step: int) -> None:
        last = list(self.parameters.values())[-1]
        old = last.detach().clone()
        right(self, step)
        with torch.no_grad():
            if name == "left-out":
                last.copy_(old)
            elif name == "half-state":
                for p in self.parameters.values():
                    p.copy_(p.half().float())
            elif name == "twice":
                self.optimizer.step()

    Training.update = update


def epsilon_inside(name: str) -> None:
    def update(
        p: Any, g: Any, state: Any, group: Any, size: Any, eps: Any, keep: Any, *, workspace: Any
    ) -> None:
        (b1, b2), m, v = group["betas"], state["exp_avg"], state["exp_avg_sq"]
        t = update.count = update.count
        torch._foreach_lerp_(m, g, 1 - b1)
        foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        for a, b, c in zip(p, m, v, strict=True):
            a.sub_(group["lr"] * (b / (1 - b1**t)) / torch.sqrt(c / (1 - b2**t) + group["eps"]))

    right = adam.Adam.coefficients

    def coefficients(group: Any, step: int) -> Any:
        update.count = step
        return right(group, step)

    adam.Adam.coefficients, adam.Adam.update = staticmethod(coefficients), staticmethod(update)


def late_count(name: str) -> None:
    right = adam.Adam.coefficients
    adam.Adam.coefficients = staticmethod(lambda group, step: right(group, step + 1))


def bare_biases(name: str) -> None:
    def optimizer(rule: Any, parameters: Any, **how: Any) -> Any:
        made = right(rule, parameters, **how)
        advance = made.advance

        def changed() -> None:
            flat = [p for p in parameters if p.dim() == 1]
            with torch.no_grad():
                for p in flat:
                    p.div_(1 - made.param_groups[0]["lr"] * rule.weight_decay)
            advance()

        made.advance = changed
        return made

    right = training.optimizer
    training.optimizer = optimizer


def root_inside(name: str) -> None:
    def update(p: Any, g: Any, state: Any, group: Any, rate: Any, *, workspace: Any) -> None:
        v = state["square_avg"]
        foreach_mul_(v, group["alpha"])
        torch._foreach_addcmul_(v, g, g, 1 - group["alpha"])
        for a, b, c in zip(p, g, v, strict=True):
            a.sub_(rate * b / torch.sqrt(c + group["eps"]))

    rmsprop.RMSprop.update = staticmethod(update)


def first_square(name: str) -> None:
    def initial_state(self: Any, p: Any, group: Any) -> Any:
        return {"square_avg": torch.ones_like(p, requires_grad=False)}

    base.RuleOptimizer.initial_state = initial_state


def other_loss(name: str) -> None:
    right = LOSSES["cross_entropy"]

    def smoothing(z: Any, y: Any) -> Any:
        return functional.cross_entropy(z, y, label_smoothing=0.1)

    LOSSES["cross_entropy"] = {
        "summed-loss": lambda z, y: functional.cross_entropy(z, y, reduction="sum"),
        "smoothing": smoothing,
        "softmax-twice": lambda z, y: right(z.softmax(-1), y),
        "ignored-class": lambda z, y: functional.cross_entropy(z, y, ignore_index=0),
    }[name]


def penalty(name: str) -> None:
    def backward(self: Any, part: Any, share: float) -> Any:
        inputs, labels = self.batch_tensors(part)
        loss = self.loss(self.network(*inputs), labels)
        loss = loss + 0.005 * sum((p * p).sum() for p in self.parameters.values())
        (loss * share).backward()
        return loss.detach()

    Training.backward = backward


def eval_mode(name: str) -> None:
    training.extra_inputs = lambda *args: {}


def data(name: str) -> None:
    right = Training.__init__

    def init(self: Any, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        x, y = neutral.held(name, self.x.numpy(), self.y.numpy())
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    Training.__init__ = init


def batches(name: str) -> None:
    right = Training.batch_tensors
    Training.batch_tensors = lambda self, part: right(self, neutral.part_of(name, part))


def gradient(name: str) -> None:
    right = Training.backward

    def backward(self: Any, part: Any, share: float) -> Any:
        loss = right(self, part, share)
        own = list(self.parameters.values())
        if name == "clipped":
            nn.utils.clip_grad_norm_(own, 0.5)
        elif name == "scaled":
            for p in own:
                p.grad.mul_(len(part))
        return loss

    Training.backward = backward


def micro_batches(name: str) -> None:
    right = split.TorchStage.loss_backward
    split.TorchStage.loss_backward = lambda self, micro, share: right(
        self, micro, neutral.micro(name, micro, share)
    )


class SwappedLSTM(recurrent.LSTM):
    """Written out, with the gates f and g exchanged."""

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.shape[0], self.hidden_size)
        found = []
        for t in range(x.shape[1]):
            z = functional.linear(x[:, t], self.weight_ih_l0, self.bias_ih_l0)
            z = z + functional.linear(h, self.weight_hh_l0, self.bias_hh_l0)
            i, g, f, o = z.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            found.append(h)
        return torch.stack(found, 1)


def unrecorded(make: Any) -> Any:
    """A layer of a training whose gradients autograd computes anew in every update."""

    def made(layer: Any) -> Any:
        training.RecordedGradient = lambda *args: None
        return make(layer)

    return made


class UnevenConv(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        n = self.own
        return self._conv_forward(
            functional.pad(x, (n + 1, n - 1, n + 1, n - 1)), self.weight, self.bias
        )


def uneven(layer: Any) -> Any:
    if not isinstance(layer, spec.Conv2d) or not layer.padding:
        return None
    made = UnevenConv(layer.inputs, layer.outputs, layer.kernel)
    made.own = layer.padding
    return made


class BareLinear(nn.Linear):
    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight)


class HalfLinear(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x).half().float()


class StaleLinear(nn.Linear):
    """Of a backend without recorded gradients: in a record nothing gets old."""

    old: Any = None

    def forward(self, x: Any) -> Any:
        if self.old is None:
            self.old = self.weight.detach().clone()
        # Its values are old, its gradient goes to the weights that are there.
        return functional.linear(x, self.old + (self.weight - self.weight.detach()), self.bias)


class DetachedLinear(nn.Linear):
    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight.detach(), self.bias.detach()) + 0 * (
            self.weight.sum() + self.bias.sum()
        )


class BareAttention(modules.Attention):
    def forward(self, x: Any) -> Any:
        d = x.shape[-1] // 3 // self.heads
        q, k, v = x.chunk(3, -1)
        return super().forward(torch.cat([q * d**0.5, k, v], -1))


class ShiftedNorm(nn.RMSNorm):
    def forward(self, x: Any) -> Any:
        return functional.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


class SwappedSwiGLU(decoder.SwiGLU):
    def forward(self, x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return functional.silu(up) * gate


class ReGLU(decoder.SwiGLU):
    def forward(self, x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return functional.relu(gate) * up


LAYERS = {
    "uneven-padding": uneven,
    "leaky": on(spec.ReLU, lambda layer: nn.LeakyReLU(0.2)),
    "gelu": on(spec.ReLU, lambda layer: nn.GELU()),
    "average-pool": on(spec.MaxPool2d, lambda layer: nn.AvgPool2d(layer.kernel)),
    "no-bias": linear(BareLinear, 10),
    "half-layer": linear(HalfLinear, 120),
    "stale-weights": unrecorded(linear(StaleLinear, 120)),
    "norm-epsilon": on(spec.LayerNorm, lambda layer: nn.LayerNorm(layer.features, eps=1e-7)),
    "attention-scale": on(spec.Attention, lambda layer: BareAttention(layer.heads, layer.causal)),
    "causal": on(spec.Attention, lambda layer: modules.Attention(layer.heads, True)),
    "detached": linear(DetachedLinear, 256),
    "rms-epsilon": on(RMSNorm, lambda layer: nn.RMSNorm(layer.features, eps=1e-5)),
    "shifted-gain": on(RMSNorm, lambda layer: ShiftedNorm(layer.features, eps=layer.eps)),
    "swapped-gate": on(SwiGLU, lambda layer: SwappedSwiGLU()),
    "relu-gate": on(SwiGLU, lambda layer: ReGLU()),
    "gates": on(spec.LSTM, lambda layer: SwappedLSTM(layer.inputs, layer.hidden)),
}

OTHERS = {
    "epsilon-inside": epsilon_inside,
    "late-count": late_count,
    "half-gradient": update_with(half_gradient),
    "half-state": after_update,
    "twice": after_update,
    "left-out": after_update,
    "bare-biases": bare_biases,
    "default-rate": set_rate,
    "stale-gradient": stale_gradient,
    "root-inside": root_inside,
    "first-square": first_square,
    **dict.fromkeys(("summed-loss", "smoothing", "softmax-twice", "ignored-class"), other_loss),
    "penalty": penalty,
    "eval-mode": eval_mode,
    **dict.fromkeys(("labels", "not-normalised", "transposed", "half-images"), data),
    **dict.fromkeys(("dropped", "padded"), batches),
    **dict.fromkeys(("clipped", "scaled"), gradient),
    **dict.fromkeys(("lost-micro-batch", "summed-micro-batches"), micro_batches),
}
