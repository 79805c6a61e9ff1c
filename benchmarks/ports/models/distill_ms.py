"""A student learns from a frozen teacher and from labels with a focal loss."""

import mindspore as ms
from mindspore import nn, ops


class MLP(nn.Cell):
    """Ten inputs, five classes."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(10, 12)
        self.norm = nn.LayerNorm([12], epsilon=1e-5)
        self.fc2 = nn.Dense(12, 5)

    def construct(self, x):
        return self.fc2(self.norm(ops.relu(self.fc1(x))))


class Net(nn.Cell):
    """Outputs the student's and the teacher's logits."""

    def __init__(self):
        super().__init__()
        self.student = MLP()
        self.teacher = MLP()
        for p in self.teacher.get_parameters():
            p.requires_grad = False

    def construct(self, x):
        return self.student(x), self.teacher(x)


def loss(outputs, targets, temperature=4.0, alpha=0.7, gamma=2.0):
    """Kullback-Leibler divergence at a temperature, and the focal loss."""
    student, teacher = outputs
    log_p = ops.log_softmax(student / temperature, axis=-1)
    q = ops.softmax(teacher / temperature, axis=-1)
    kl = ops.kl_div(log_p, q, reduction="batchmean")
    ce = ops.cross_entropy(student, targets.astype(ms.int32), reduction="none")
    weight = ops.pow(1 - ops.exp(-ce), gamma)
    focal = (weight * ce).mean()
    return alpha * temperature**2 * kl + (1 - alpha) * focal


def optimizer(parameters):
    """Nesterov's momentum; biases and norms without decay."""
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": 0.05},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return nn.SGD(groups, learning_rate=0.05, momentum=0.9, nesterov=True)
