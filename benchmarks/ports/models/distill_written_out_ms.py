"""Distillation with both losses and the optimizer written out."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Net(nn.Cell):
    """Weights as Parameters; the teacher's with requires_grad=False."""

    def __init__(self):
        super().__init__()
        shapes = {"w1": (12, 10), "b1": (12,), "g": (12,), "o": (12,), "w2": (5, 12), "b2": (5,)}
        for who in ("student", "teacher"):
            for name, shape in shapes.items():
                value = Tensor(np.random.randn(*shape), ms.float32)
                setattr(
                    self,
                    f"{who}_{name}",
                    Parameter(value, name=f"{who}_{name}", requires_grad=who == "student"),
                )

    @staticmethod
    def run(x, w1, b1, g, o, w2, b2):
        h = mint.nn.functional.relu(mint.matmul(x, w1.T) + b1)
        h = h - mint.mean(h, -1, True)
        h = h * mint.rsqrt(mint.mean(h * h, -1, True) + 1e-5) * g + o
        return mint.matmul(h, w2.T) + b2

    def construct(self, x):
        student = self.run(
            x,
            self.student_w1,
            self.student_b1,
            self.student_g,
            self.student_o,
            self.student_w2,
            self.student_b2,
        )
        teacher = self.run(
            x,
            self.teacher_w1,
            self.teacher_b1,
            self.teacher_g,
            self.teacher_o,
            self.teacher_w2,
            self.teacher_b2,
        )
        return student, teacher


def loss(outputs, targets):
    """Both terms from log-probabilities."""
    student, teacher = outputs
    rows = student.shape[0]
    log_p, log_q = ops.log_softmax(student / 4, -1), ops.log_softmax(teacher / 4, -1)
    kl = (ops.exp(log_q) * (log_q - log_p)).sum() / rows
    hot = (targets[:, None] == ops.arange(5)).astype(ms.float32)
    log_hit = (ops.log_softmax(student, -1) * hot).sum(-1)
    miss = 1 - ops.exp(log_hit)
    return 11.2 * kl - 0.3 * (miss * miss * log_hit).sum() / rows


class Nesterov(nn.Optimizer):
    """v = 0.9 v + g; p -= lr (g + 0.9 v)."""

    def __init__(self, parameters, rate, decay):
        super().__init__(rate, parameters)
        self.rate, self.decay = rate, decay
        self.v = self.parameters.clone(prefix="speed", init="zeros")

    def construct(self, gradients):
        for p, g, v in zip(self.parameters, gradients, self.v):
            if len(p.shape) > 1:
                g = g + self.decay * p
            ops.assign(v, 0.9 * v + g)
            ops.assign(p, p - self.rate * (g + 0.9 * v))
        return True


def optimizer(parameters):
    """Decay of matrices only."""
    return Nesterov(parameters, 0.05, 0.05)
