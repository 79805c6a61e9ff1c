"""Probes of optimizers in MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import amp, mint, nn, ops
from mindspore.experimental import optim
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal

WEIGHTS = {"weight": normal(3, 4) * 0.1, "bias": normal(3) * 0.1}
Numbers = dict[str, NDArray]


def five_steps(make: Callable[[list[ms.Parameter]], nn.Cell], scale: float = 1.0) -> Numbers:
    """Return `WEIGHTS` after five steps with given gradients, `scale` times normal numbers."""
    weights = [ms.Parameter(ms.Tensor(array), name=name) for name, array in WEIGHTS.items()]
    optimizer = make(weights)
    for step in range(5):
        gradients = [normal(*weight.shape, seed=1 + step) * scale for weight in weights]
        optimizer(tuple(ms.Tensor(gradient) for gradient in gradients))
    return {weight.name: weight.asnumpy() for weight in weights}


def ones_parameter(name: str) -> ms.Parameter:
    return ms.Parameter(ops.ones(3), name=name)


def sgd_default_rate() -> Numbers:
    return five_steps(lambda weights: nn.SGD(weights))


def sgd_default_rate_equal() -> Numbers:
    return five_steps(lambda weights: nn.SGD(weights, learning_rate=0.1))


def sgd_explicit() -> tuple[Numbers, ...]:
    given = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    return (
        five_steps(lambda weights: nn.SGD(weights, **given, dampening=0.5)),
        five_steps(lambda weights: nn.SGD(weights, **given, nesterov=True)),
    )


def momentum_nesterov() -> Numbers:
    return five_steps(lambda weights: nn.Momentum(weights, 0.1, 0.9, use_nesterov=True))


def momentum_nesterov_equal() -> Numbers:
    return five_steps(lambda weights: nn.SGD(weights, 0.1, 0.9, nesterov=True))


def decay_filter() -> Numbers:
    layer = nn.LayerNorm([8])
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1, weight_decay=0.1)
    optimizer((ops.ones(8), ops.ones(8)))
    return {"scale": layer.gamma.asnumpy(), "shift": layer.beta.asnumpy()}


def decay_filter_equal() -> Numbers:
    layer = nn.LayerNorm([8])
    group = {"params": layer.trainable_params(), "weight_decay": 0.1}
    optimizer = nn.SGD([group], learning_rate=0.1)
    optimizer((ops.ones(8), ops.ones(8)))
    return {"scale": layer.gamma.asnumpy(), "shift": layer.beta.asnumpy()}


def decay_coupling() -> Numbers:
    return five_steps(lambda weights: nn.Adam(weights, 0.01, weight_decay=0.1))


def decay_coupling_equal() -> Numbers:
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adam_explicit() -> Numbers:
    return five_steps(lambda weights: nn.Adam(weights, 0.01, weight_decay=0.1))


def adam_epsilon() -> Numbers:
    return five_steps(lambda weights: nn.Adam(weights, 0.01, eps=1e-3))


def adam_epsilon_equal() -> Numbers:
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, eps=1e-3, weight_decay=0.0))


def adam_tiny_gradients() -> Numbers:
    return five_steps(lambda weights: nn.Adam(weights, 0.01), scale=1e-8)


def adam_tiny_gradients_equal() -> Numbers:
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.0), scale=1e-8)


def adamw_bias_correction() -> Numbers:
    return five_steps(lambda weights: nn.AdamWeightDecay(weights, 0.01, eps=1e-8, weight_decay=0.1))


def adamw_bias_correction_equal() -> Numbers:
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adamw_defaults() -> Numbers:
    """Return weights after steps with zero gradients, which leave only the decay."""
    return five_steps(lambda weights: nn.AdamWeightDecay(weights, 0.1), scale=0.0)


def adamw_defaults_equal() -> Numbers:
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.1), scale=0.0)


def nadam() -> Numbers:
    return five_steps(lambda weights: nn.Adam(weights, 0.01, use_nesterov=True))


def nadam_equal() -> Numbers:
    return five_steps(lambda weights: optim.NAdam(weights, lr=0.01))


def rmsprop_form() -> Numbers:
    return five_steps(lambda weights: nn.RMSProp(weights, 0.01, decay=0.9, epsilon=1e-8))


def rmsprop_form_equal() -> Numbers:
    return five_steps(lambda weights: optim.RMSprop(weights, lr=0.01, alpha=0.9, eps=1e-8))


def rmsprop_defaults() -> Numbers:
    return five_steps(lambda weights: nn.RMSProp(weights))


def rmsprop_defaults_equal() -> Numbers:
    return five_steps(lambda weights: optim.RMSprop(weights))


def adagrad_accumulator() -> Numbers:
    return five_steps(lambda weights: nn.Adagrad(weights, learning_rate=0.01))


def adagrad_accumulator_equal() -> Numbers:
    return five_steps(lambda weights: nn.Adagrad(weights, accum=0.0, learning_rate=0.01))


def default_rates() -> dict[str, Any]:
    return {
        "adamax": five_steps(lambda weights: nn.AdaMax(weights))["weight"],
        "rprop": five_steps(lambda weights: nn.Rprop(weights))["weight"],
        "asgd": five_steps(lambda weights: nn.ASGD(weights))["weight"],
    }


def default_rates_equal() -> dict[str, Any]:
    return {
        "adamax": five_steps(lambda weights: nn.AdaMax(weights, 2e-3))["weight"],
        "rprop": five_steps(lambda weights: nn.Rprop(weights, 0.01))["weight"],
        "asgd": five_steps(lambda weights: nn.ASGD(weights, 0.01))["weight"],
    }


def unused_parameters() -> Numbers:
    used, unused = ones_parameter("used"), ones_parameter("unused")
    optimizer = nn.SGD([used, unused], learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: used.square().sum(), None, optimizer.parameters)())
    return {"used": used.asnumpy(), "unused": unused.asnumpy()}


def unused_parameters_equal() -> Numbers:
    used, unused = ones_parameter("used"), ones_parameter("unused")
    optimizer = nn.SGD([used], learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: used.square().sum(), None, optimizer.parameters)())
    return {"used": used.asnumpy(), "unused": unused.asnumpy()}


def frozen_parameters() -> Numbers:
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([body, head], learning_rate=0.1, weight_decay=0.1)
    body.requires_grad = False
    optimizer(ms.grad(lambda: (body * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def frozen_parameters_equal() -> Numbers:
    body, head = ones_parameter("body"), ones_parameter("head")
    body.requires_grad = False
    trained = [weight for weight in (body, head) if weight.requires_grad]
    optimizer = nn.SGD(trained, learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: (body * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def mint_optim() -> Numbers:
    return five_steps(lambda weights: mint.optim.SGD(weights, lr=0.1))


def mint_optim_equal() -> Numbers:
    return five_steps(lambda weights: nn.SGD(weights, learning_rate=0.1))


def clip_global_norm() -> NDArray:
    gradients = (ms.Tensor([3e-3, 4e-3]),)
    return ops.clip_by_global_norm(gradients, 1e-3)[0].asnumpy()


def clip_global_norm_equal() -> NDArray:
    gradients = (ms.Tensor([3e-3, 4e-3]),)
    return ops.clip_by_norm(gradients, 1e-3)[0].asnumpy()


def clip_in_place() -> NDArray:
    weight = ms.Parameter(ops.zeros(2), name="weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradients = (ms.Tensor([3.0, 4.0]),)
    ops.clip_by_norm(gradients, 1.0)
    optimizer(gradients)
    return weight.asnumpy()


def clip_in_place_equal() -> NDArray:
    weight = ms.Parameter(ops.zeros(2), name="weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradients = (ms.Tensor([3.0, 4.0]),)
    gradients = ops.clip_by_norm(gradients, 1.0)
    optimizer(gradients)
    return weight.asnumpy()


def group_order() -> Numbers:
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([{"params": [head], "lr": 0.1}, {"params": [body], "lr": 0.01}])
    optimizer(ms.grad(lambda: (body + 5 * head).sum(), None, [body, head])())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def group_order_equal() -> Numbers:
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([{"params": [head], "lr": 0.1}, {"params": [body], "lr": 0.01}])
    optimizer(ms.grad(lambda: (body + 5 * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def group_keys() -> NDArray:
    weight = ones_parameter("weight")
    optimizer = nn.SGD([{"params": [weight], "momentum": 0.9}], learning_rate=0.1)
    for _ in range(2):
        optimizer((ops.ones(3),))
    return weight.asnumpy()


def group_keys_equal() -> NDArray:
    weight = ones_parameter("weight")
    optimizer = optim.SGD([{"params": [weight], "momentum": 0.9}], lr=0.1)
    for _ in range(2):
        optimizer((ops.ones(3),))
    return weight.asnumpy()


def parameter_names() -> int:
    encoder, decoder = nn.Dense(4, 2), nn.Dense(2, 4)
    optimizer = nn.SGD([*encoder.trainable_params(), *decoder.trainable_params()])
    return len(optimizer.parameters)


def parameter_names_equal() -> int:
    encoder, decoder = nn.CellList([nn.Dense(4, 2), nn.Dense(2, 4)])
    optimizer = nn.SGD([*encoder.trainable_params(), *decoder.trainable_params()])
    return len(optimizer.parameters)


def weights_replaced() -> NDArray:
    layer = nn.Dense(3, 2, has_bias=False)
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    ms.load_param_into_net(layer, {"weight": ms.Parameter(ops.ones((2, 3)), name="weight")})
    optimizer((ops.ones((2, 3)),))
    return layer.weight.asnumpy()


def weights_replaced_equal() -> NDArray:
    layer = nn.Dense(3, 2, has_bias=False)
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    for name, value in {"weight": ops.ones((2, 3))}.items():
        ops.assign(layer.parameters_dict()[name], value)
    optimizer((ops.ones((2, 3)),))
    return layer.weight.asnumpy()


def loaded_weights_shared() -> NDArray:
    """Return a copy of loaded weights that must not change when the original is trained further."""
    original, copy = nn.Dense(3, 2, "ones", has_bias=False), nn.Dense(3, 2, has_bias=False)
    ms.load_param_into_net(copy, original.parameters_dict())
    optimizer = nn.SGD(original.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    return copy.weight.asnumpy()


def loaded_weights_shared_equal() -> NDArray:
    original, copy = nn.Dense(3, 2, "ones", has_bias=False), nn.Dense(3, 2, has_bias=False)
    weights = {name: weight.clone() for name, weight in original.parameters_dict().items()}
    ms.load_param_into_net(copy, weights)
    optimizer = nn.SGD(original.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    return copy.weight.asnumpy()


def momentum_by_hand(**begin: str) -> Numbers:
    weights = [ms.Parameter(ms.Tensor(array), name=name) for name, array in WEIGHTS.items()]
    moments = ms.ParameterTuple(weights).clone(prefix="moment", **begin)
    for step in range(5):
        for weight, moment in zip(weights, moments, strict=True):
            gradient = ms.Tensor(normal(*weight.shape, seed=1 + step))
            ops.assign(moment, 0.9 * moment + gradient)
            ops.assign(weight, weight - 0.1 * moment)
    return {weight.name: weight.asnumpy() for weight in weights}


def cloned_state() -> Numbers:
    """Return weights after steps of a custom optimizer whose state must start from zeros."""
    return momentum_by_hand()


def cloned_state_equal() -> Numbers:
    return momentum_by_hand(init="zeros")


def loss_scale_overflow() -> NDArray:
    weight = ones_parameter("weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    scaler = amp.StaticLossScaler(1024.0)
    loss = lambda: scaler.scale((weight * 1e38).sum())  # noqa: E731
    gradients = scaler.unscale(ms.grad(loss, None, optimizer.parameters)())
    optimizer(gradients)
    return weight.asnumpy()


def loss_scale_overflow_equal() -> NDArray:
    weight = ones_parameter("weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    scaler = amp.StaticLossScaler(1024.0)
    loss = lambda: scaler.scale((weight * 1e38).sum())  # noqa: E731
    gradients = scaler.unscale(ms.grad(loss, None, optimizer.parameters)())
    if amp.all_finite(gradients):
        optimizer(gradients)
    return weight.asnumpy()
