"""Matrix factorisation with biases."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal


class Net(nn.Cell):
    """Outputs ratings and the penalty on the rows used."""

    def __init__(self, users=9, items=7, k=8):
        super().__init__()
        init = Normal(0.5)
        self.user_factors = nn.Embedding(users, k, embedding_table=init)
        self.item_factors = nn.Embedding(items, k, embedding_table=init)
        self.user_bias = nn.Embedding(users, 1, embedding_table=init)
        self.item_bias = nn.Embedding(items, 1, embedding_table=init)
        self.mean = Parameter(Tensor([0.5], ms.float32), name="mean")

    def construct(self, users, items):
        p = self.user_factors(users)
        q = self.item_factors(items)
        bu = self.user_bias(users).squeeze(-1)
        bi = self.item_bias(items).squeeze(-1)
        penalty = (p * p).sum(-1) + (q * q).sum(-1) + bu * bu + bi * bi
        rating = (p * q).sum(-1) + bu + bi + self.mean
        return rating, penalty


def loss(outputs, ratings):
    """Mean squared error and a little of the penalty."""
    rating, penalty = outputs
    error = ops.square(rating - ratings).mean()
    return error + 0.02 * penalty.mean()


def optimizer(parameters):
    """SGD with momentum and weight decay."""
    return nn.SGD(parameters, learning_rate=0.1, momentum=0.9, weight_decay=1e-3)
