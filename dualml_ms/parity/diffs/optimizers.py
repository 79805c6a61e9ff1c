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
Arrays = dict[str, NDArray]


def five_steps(make: Callable[[list[ms.Parameter]], nn.Cell], scale: float = 1.0) -> Arrays:
    """Return name → weight, from `WEIGHTS`, after five steps of the optimizer that ``make`` returns
    for the weights. The gradients are ``scale`` times normal numbers, equal in both frameworks."""
    weights = [ms.Parameter(ms.Tensor(array), name=name) for name, array in WEIGHTS.items()]
    optimizer = make(weights)
    for step in range(5):
        gradients = [normal(*weight.shape, seed=1 + step) * scale for weight in weights]
        optimizer(tuple(ms.Tensor(gradient) for gradient in gradients))
    return {weight.name: weight.asnumpy() for weight in weights}


def ones_parameter(name: str) -> ms.Parameter:
    """Make a trainable parameter of three ones, called ``name``."""
    return ms.Parameter(ops.ones(3), name=name)


def sgd_default_rate() -> Arrays:
    """Run the probe "SGD's default learning rate" in MindSpore and return name → weight after five
    steps. `nn.SGD` takes `learning_rate=0.1`, a hundred times as much."""
    return five_steps(lambda weights: nn.SGD(weights))


def sgd_default_rate_equal() -> Arrays:
    """Run the probe "SGD's default learning rate" in MindSpore, written to agree with PyTorch, and
    return name → weight after five steps. Always pass the rate, on both sides."""
    return five_steps(lambda weights: nn.SGD(weights, learning_rate=0.1))


def sgd_explicit() -> tuple[Arrays, ...]:
    """Run the probe "SGD with everything passed" in MindSpore and return two dicts of name → weight
    after five steps, with dampening and with Nesterov. `nn.SGD` with the same values does the same,
    biases included; only `beta` and `gamma` are treated otherwise, see `decay-filter`."""
    given = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    return (
        five_steps(lambda weights: nn.SGD(weights, **given, dampening=0.5)),
        five_steps(lambda weights: nn.SGD(weights, **given, nesterov=True)),
    )


def momentum_nesterov() -> Arrays:
    """Run the probe "`nn.Momentum(use_nesterov=True)`" in MindSpore and return name → weight after
    five steps. On CPU `nn.Momentum` ignores the flag: it gives the same numbers with and without
    it."""
    return five_steps(lambda weights: nn.Momentum(weights, 0.1, 0.9, use_nesterov=True))


def momentum_nesterov_equal() -> Arrays:
    """Run the probe "`nn.Momentum(use_nesterov=True)`" in MindSpore, written to agree with PyTorch,
    and return name → weight after five steps. MindSpore: `nn.SGD(…, momentum=…, nesterov=True)`."""
    return five_steps(lambda weights: nn.SGD(weights, 0.1, 0.9, nesterov=True))


def decay_filter() -> Arrays:
    """Run the probe "Weight decay passes over normalisation layers" in MindSpore and return
    ``scale`` and ``shift`` after one step. Unless parameters come in groups, those with `beta` or
    `gamma` in their names (LayerNorm, BatchNorm) are not decayed; biases are."""
    layer = nn.LayerNorm([8])
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1, weight_decay=0.1)
    optimizer((ops.ones(8), ops.ones(8)))
    return {"scale": layer.gamma.asnumpy(), "shift": layer.beta.asnumpy()}


def decay_filter_equal() -> Arrays:
    """Run the probe "Weight decay passes over normalisation layers" in MindSpore, written to agree
    with PyTorch, and return ``scale`` and ``shift`` after one step. MindSpore: pass the parameters
    as a group with its own `weight_decay`; or torch: put normalisation layers into a group with
    `weight_decay=0`."""
    layer = nn.LayerNorm([8])
    group = {"params": layer.trainable_params(), "weight_decay": 0.1}
    optimizer = nn.SGD([group], learning_rate=0.1)
    optimizer((ops.ones(8), ops.ones(8)))
    return {"scale": layer.gamma.asnumpy(), "shift": layer.beta.asnumpy()}


def decay_coupling() -> Arrays:
    """Run the probe "AdamW ported to `nn.Adam`" in MindSpore and return name → weight after five
    steps. `nn.Adam(weight_decay=…)` adds it to the gradient, like `optim.Adam`;
    `nn.AdamWeightDecay` and `experimental.optim.AdamW` are decoupled."""
    return five_steps(lambda weights: nn.Adam(weights, 0.01, weight_decay=0.1))


def decay_coupling_equal() -> Arrays:
    """Run the probe "AdamW ported to `nn.Adam`" in MindSpore, written to agree with PyTorch, and
    return name → weight after five steps. MindSpore: `mindspore.experimental.optim.AdamW`."""
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adam_explicit() -> Arrays:
    """Run the probe "Adam with ordinary gradients" in MindSpore and return name → weight after five
    steps. `nn.Adam` with the same values: its other place for ε does not show while gradients are
    much larger than ε."""
    return five_steps(lambda weights: nn.Adam(weights, 0.01, weight_decay=0.1))


def adam_epsilon() -> Arrays:
    """Run the probe "Where Adam adds its ε" in MindSpore and return name → weight after five steps.
    `nn.Adam` and `experimental.optim.Adam` correct the rate instead and add ε to the uncorrected
    root (“ε hat”), so early ε weighs more."""
    return five_steps(lambda weights: nn.Adam(weights, 0.01, eps=1e-3))


def adam_epsilon_equal() -> Arrays:
    """Run the probe "Where Adam adds its ε" in MindSpore, written to agree with PyTorch, and return
    name → weight after five steps. MindSpore: `experimental.optim.AdamW(…, weight_decay=0.0)`,
    which has torch's form."""
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, eps=1e-3, weight_decay=0.0))


def adam_tiny_gradients() -> Arrays:
    """Run the probe "Adam's default ε and tiny gradients" in MindSpore and return name → weight
    after five steps. ε = 1e-8 too, but `nn.Adam` compares it with the uncorrected root, which is
    much smaller in the first steps: gradients near 1e-8 move the weights far less."""
    return five_steps(lambda weights: nn.Adam(weights, 0.01), scale=1e-8)


def adam_tiny_gradients_equal() -> Arrays:
    """Run the probe "Adam's default ε and tiny gradients" in MindSpore, written to agree with
    PyTorch, and return name → weight after five steps. MindSpore: `experimental.optim.AdamW(…,
    weight_decay=0.0)`."""
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.0), scale=1e-8)


def adamw_bias_correction() -> Arrays:
    """Run the probe "`nn.AdamWeightDecay` does not correct the bias" in MindSpore and return name →
    weight after five steps. `nn.AdamWeightDecay` uses the moments as they are, so its first steps
    are larger."""
    return five_steps(lambda weights: nn.AdamWeightDecay(weights, 0.01, eps=1e-8, weight_decay=0.1))


def adamw_bias_correction_equal() -> Arrays:
    """Run the probe "`nn.AdamWeightDecay` does not correct the bias" in MindSpore, written to agree
    with PyTorch, and return name → weight after five steps. MindSpore:
    `experimental.optim.AdamW`."""
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adamw_defaults() -> Arrays:
    """Return name → weight after five steps of `nn.AdamWeightDecay` at a rate of 0.1 with zero
    gradients, which leave only the default decay."""
    return five_steps(lambda weights: nn.AdamWeightDecay(weights, 0.1), scale=0.0)


def adamw_defaults_equal() -> Arrays:
    """Run the probe "Default decay of AdamW" in MindSpore, written to agree with PyTorch, and
    return name → weight after five steps. Pass both; or MindSpore: `experimental.optim.AdamW`,
    whose defaults are torch's."""
    return five_steps(lambda weights: optim.AdamW(weights, lr=0.1), scale=0.0)


def nadam() -> Arrays:
    """Run the probe "NAdam ported to `nn.Adam(use_nesterov=True)`" in MindSpore and return name →
    weight after five steps. `nn.Adam(use_nesterov=True)` looks ahead with a constant β₁: another
    algorithm."""
    return five_steps(lambda weights: nn.Adam(weights, 0.01, use_nesterov=True))


def nadam_equal() -> Arrays:
    """Run the probe "NAdam ported to `nn.Adam(use_nesterov=True)`" in MindSpore, written to agree
    with PyTorch, and return name → weight after five steps. MindSpore:
    `experimental.optim.NAdam`."""
    return five_steps(lambda weights: optim.NAdam(weights, lr=0.01))


def rmsprop_form() -> Arrays:
    """Run the probe "RMSprop's ε and its start" in MindSpore and return name → weight after five
    steps. `nn.RMSProp` starts it at 1 and adds ε inside of the root; its first steps are much
    shorter even with the same rate, decay and ε."""
    return five_steps(lambda weights: nn.RMSProp(weights, 0.01, decay=0.9, epsilon=1e-8))


def rmsprop_form_equal() -> Arrays:
    """Run the probe "RMSprop's ε and its start" in MindSpore, written to agree with PyTorch, and
    return name → weight after five steps. MindSpore: `experimental.optim.RMSprop`."""
    return five_steps(lambda weights: optim.RMSprop(weights, lr=0.01, alpha=0.9, eps=1e-8))


def rmsprop_defaults() -> Arrays:
    """Run the probe "RMSprop's defaults" in MindSpore and return name → weight after five steps.
    `nn.RMSProp`: `learning_rate=0.1`, `decay=0.9`, `epsilon=1e-10`."""
    return five_steps(lambda weights: nn.RMSProp(weights))


def rmsprop_defaults_equal() -> Arrays:
    """Run the probe "RMSprop's defaults" in MindSpore, written to agree with PyTorch, and return
    name → weight after five steps. MindSpore: `experimental.optim.RMSprop`, whose defaults are
    torch's; passing torch's values to `nn.RMSProp` is not enough, see `rmsprop-form`."""
    return five_steps(lambda weights: optim.RMSprop(weights))


def adagrad_accumulator() -> Arrays:
    """Run the probe "What Adagrad starts from" in MindSpore and return name → weight after five
    steps. `nn.Adagrad` starts it at 0.1 (and `learning_rate` is 0.001 by default): the first steps
    are shorter."""
    return five_steps(lambda weights: nn.Adagrad(weights, learning_rate=0.01))


def adagrad_accumulator_equal() -> Arrays:
    """Run the probe "What Adagrad starts from" in MindSpore, written to agree with PyTorch, and
    return name → weight after five steps. MindSpore: `nn.Adagrad(…, accum=0.0)`; or torch:
    `initial_accumulator_value=0.1`."""
    return five_steps(lambda weights: nn.Adagrad(weights, accum=0.0, learning_rate=0.01))


def default_rates() -> dict[str, Any]:
    """Run the probe "Default rates of Adamax, Rprop and ASGD" in MindSpore and return optimizer →
    weight (3, 4) after five steps. `nn.AdaMax` 0.001, `nn.Rprop` and `nn.ASGD` 0.1."""
    return {
        "adamax": five_steps(lambda weights: nn.AdaMax(weights))["weight"],
        "rprop": five_steps(lambda weights: nn.Rprop(weights))["weight"],
        "asgd": five_steps(lambda weights: nn.ASGD(weights))["weight"],
    }


def default_rates_equal() -> dict[str, Any]:
    """Run the probe "Default rates of Adamax, Rprop and ASGD" in MindSpore, written to agree with
    PyTorch, and return optimizer → weight (3, 4) after five steps. Always pass the rate; the
    algorithms agree then."""
    return {
        "adamax": five_steps(lambda weights: nn.AdaMax(weights, 2e-3))["weight"],
        "rprop": five_steps(lambda weights: nn.Rprop(weights, 0.01))["weight"],
        "asgd": five_steps(lambda weights: nn.ASGD(weights, 0.01))["weight"],
    }


def unused_parameters() -> Arrays:
    """Run the probe "Parameters that the loss does not use" in MindSpore and return ``used`` and
    ``unused`` after one step. Their gradient is zero, and weight decay or leftover momentum still
    moves them."""
    used, unused = ones_parameter("used"), ones_parameter("unused")
    optimizer = nn.SGD([used, unused], learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: used.square().sum(), None, optimizer.parameters)())
    return {"used": used.asnumpy(), "unused": unused.asnumpy()}


def unused_parameters_equal() -> Arrays:
    """Run the probe "Parameters that the loss does not use" in MindSpore, written to agree with
    PyTorch, and return ``used`` and ``unused`` after one step. MindSpore: give the optimizer only
    the parameters in use."""
    used, unused = ones_parameter("used"), ones_parameter("unused")
    optimizer = nn.SGD([used], learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: used.square().sum(), None, optimizer.parameters)())
    return {"used": used.asnumpy(), "unused": unused.asnumpy()}


def frozen_parameters() -> Arrays:
    """Run the probe "Freezing after the optimizer was made" in MindSpore and return ``body`` and
    ``head`` after one step. The optimizer keeps the parameter, gets a zero gradient for it and
    decays it all the same."""
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([body, head], learning_rate=0.1, weight_decay=0.1)
    body.requires_grad = False
    optimizer(ms.grad(lambda: (body * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def frozen_parameters_equal() -> Arrays:
    """Run the probe "Freezing after the optimizer was made" in MindSpore, written to agree with
    PyTorch, and return ``body`` and ``head`` after one step. MindSpore: freeze first, then make the
    optimizer from `net.trainable_params()`."""
    body, head = ones_parameter("body"), ones_parameter("head")
    body.requires_grad = False
    trained = [weight for weight in (body, head) if weight.requires_grad]
    optimizer = nn.SGD(trained, learning_rate=0.1, weight_decay=0.1)
    optimizer(ms.grad(lambda: (body * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def mint_optim() -> Arrays:
    """Run the probe "`mint.optim` on CPU" in MindSpore and return name → weight after five steps.
    `mint.optim.SGD` and `mint.optim.Adam` are made for Ascend; on CPU in PyNative mode they run
    without an error and move nothing."""
    return five_steps(lambda weights: mint.optim.SGD(weights, lr=0.1))


def mint_optim_equal() -> Arrays:
    """Run the probe "`mint.optim` on CPU" in MindSpore, written to agree with PyTorch, and return
    name → weight after five steps. MindSpore on CPU: `nn.SGD`, or `experimental.optim`."""
    return five_steps(lambda weights: nn.SGD(weights, learning_rate=0.1))


def clip_global_norm() -> NDArray:
    """Run the probe "The constant in clipping by the global norm" in MindSpore and return the
    clipped gradient (2,). `ops.clip_by_global_norm` divides by the norm itself; it shows where
    norms are small."""
    gradients = (ms.Tensor([3e-3, 4e-3]),)
    return ops.clip_by_global_norm(gradients, 1e-3)[0].asnumpy()


def clip_global_norm_equal() -> NDArray:
    """Run the probe "The constant in clipping by the global norm" in MindSpore, written to agree
    with PyTorch, and return the clipped gradient (2,). MindSpore: `ops.clip_by_norm` on the tuple
    of gradients, which adds the 1e-6 too."""
    gradients = (ms.Tensor([3e-3, 4e-3]),)
    return ops.clip_by_norm(gradients, 1e-3)[0].asnumpy()


def clip_in_place() -> NDArray:
    """Run the probe "Clipping gradients and dropping the result" in MindSpore and return the weight
    (2,) after one step. `ops.clip_by_norm` and `ops.clip_by_global_norm` return new gradients; a
    call whose result is dropped does nothing."""
    weight = ms.Parameter(ops.zeros(2), name="weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradients = (ms.Tensor([3.0, 4.0]),)
    ops.clip_by_norm(gradients, 1.0)
    optimizer(gradients)
    return weight.asnumpy()


def clip_in_place_equal() -> NDArray:
    """Run the probe "Clipping gradients and dropping the result" in MindSpore, written to agree
    with PyTorch, and return the weight (2,) after one step. MindSpore: `gradients =
    ops.clip_by_norm(gradients, …)`."""
    weight = ms.Parameter(ops.zeros(2), name="weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    gradients = (ms.Tensor([3.0, 4.0]),)
    gradients = ops.clip_by_norm(gradients, 1.0)
    optimizer(gradients)
    return weight.asnumpy()


def group_order() -> Arrays:
    """Run the probe "Gradients in another order than the groups" in MindSpore and return ``body``
    and ``head`` after one step. The optimizer pairs gradients with parameters by position, in the
    order of its groups; with equal shapes nothing tells that they are swapped."""
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([{"params": [head], "lr": 0.1}, {"params": [body], "lr": 0.01}])
    optimizer(ms.grad(lambda: (body + 5 * head).sum(), None, [body, head])())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def group_order_equal() -> Arrays:
    """Run the probe "Gradients in another order than the groups" in MindSpore, written to agree
    with PyTorch, and return ``body`` and ``head`` after one step. MindSpore: differentiate with
    respect to `optimizer.parameters`, or give `order_params`."""
    body, head = ones_parameter("body"), ones_parameter("head")
    optimizer = nn.SGD([{"params": [head], "lr": 0.1}, {"params": [body], "lr": 0.01}])
    optimizer(ms.grad(lambda: (body + 5 * head).sum(), None, optimizer.parameters)())
    return {"body": body.asnumpy(), "head": head.asnumpy()}


def group_keys() -> NDArray:
    """Run the probe "Momentum or betas of a parameter group" in MindSpore, where it raises
    KeyError; else return the weight (3,) after two steps. Groups of `nn` optimizers know `lr`,
    `weight_decay`, `grad_centralization` and `order_params`; others raise a KeyError."""
    weight = ones_parameter("weight")
    optimizer = nn.SGD([{"params": [weight], "momentum": 0.9}], learning_rate=0.1)
    for _ in range(2):
        optimizer((ops.ones(3),))
    return weight.asnumpy()


def group_keys_equal() -> NDArray:
    """Run the probe "Momentum or betas of a parameter group" in MindSpore, written to agree with
    PyTorch, and return the weight (3,) after two steps. MindSpore: `experimental.optim`, whose
    groups take all options; or two optimizers."""
    weight = ones_parameter("weight")
    optimizer = optim.SGD([{"params": [weight], "momentum": 0.9}], lr=0.1)
    for _ in range(2):
        optimizer((ops.ones(3),))
    return weight.asnumpy()


def parameter_names() -> int:
    """Run the probe "Two layers in one optimizer" in MindSpore, where it raises ValueError; else
    return the number of parameters in the optimizer. Names must be unique: two layers that belong
    to no common cell both call theirs `weight`, and the optimizer raises a ValueError."""
    encoder, decoder = nn.Dense(4, 2), nn.Dense(2, 4)
    optimizer = nn.SGD([*encoder.trainable_params(), *decoder.trainable_params()])
    return len(optimizer.parameters)


def parameter_names_equal() -> int:
    """Run the probe "Two layers in one optimizer" in MindSpore, written to agree with PyTorch, and
    return the number of parameters in the optimizer. MindSpore: put the layers into one cell
    (`nn.CellList`, an attribute of a net) first."""
    encoder, decoder = nn.CellList([nn.Dense(4, 2), nn.Dense(2, 4)])
    optimizer = nn.SGD([*encoder.trainable_params(), *decoder.trainable_params()])
    return len(optimizer.parameters)


def weights_replaced() -> NDArray:
    """Run the probe "Loading weights after the first step" in MindSpore and return the weight (2,
    3) after both steps. `load_param_into_net`, `load_checkpoint(…, net)` and `Parameter.set_data`
    give the parameter other memory. In PyNative mode an `nn` optimizer that has run before goes on
    updating the old one: the weights no longer change."""
    layer = nn.Dense(3, 2, has_bias=False)
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    ms.load_param_into_net(layer, {"weight": ms.Parameter(ops.ones((2, 3)), name="weight")})
    optimizer((ops.ones((2, 3)),))
    return layer.weight.asnumpy()


def weights_replaced_equal() -> NDArray:
    """Run the probe "Loading weights after the first step" in MindSpore, written to agree with
    PyTorch, and return the weight (2, 3) after both steps. MindSpore: `ops.assign(parameter,
    value)` or `parameter.copy_(value)`; or make the optimizer anew."""
    layer = nn.Dense(3, 2, has_bias=False)
    optimizer = nn.SGD(layer.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    for name, value in {"weight": ops.ones((2, 3))}.items():
        ops.assign(layer.parameters_dict()[name], value)
    optimizer((ops.ones((2, 3)),))
    return layer.weight.asnumpy()


def loaded_weights_shared() -> NDArray:
    """Return the weight (2, 3) of a net that has loaded another's, ones, after that other one was
    trained by a step: both share their memory here, so that it changes, too."""
    original, copy = nn.Dense(3, 2, "ones", has_bias=False), nn.Dense(3, 2, has_bias=False)
    ms.load_param_into_net(copy, original.parameters_dict())
    optimizer = nn.SGD(original.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    return copy.weight.asnumpy()


def loaded_weights_shared_equal() -> NDArray:
    """Run the probe "A net loaded from another one follows it" in MindSpore, written to agree with
    PyTorch, and return the loaded weight (2, 3) after a step of the other net. MindSpore: load
    `{name: weight.clone() for name, weight in …}`, or `ops.assign` each."""
    original, copy = nn.Dense(3, 2, "ones", has_bias=False), nn.Dense(3, 2, has_bias=False)
    weights = {name: weight.clone() for name, weight in original.parameters_dict().items()}
    ms.load_param_into_net(copy, weights)
    optimizer = nn.SGD(original.trainable_params(), learning_rate=0.1)
    optimizer((ops.ones((2, 3)),))
    return copy.weight.asnumpy()


def momentum_by_hand(**begin: str) -> Arrays:
    """Return name → weight, from `WEIGHTS`, after five steps of hand-written momentum SGD (rate
    0.1, momentum 0.9); ``begin`` are options of the clone that makes its buffers."""
    weights = [ms.Parameter(ms.Tensor(array), name=name) for name, array in WEIGHTS.items()]
    moments = ms.ParameterTuple(weights).clone(prefix="moment", **begin)
    for step in range(5):
        for weight, moment in zip(weights, moments, strict=True):
            gradient = ms.Tensor(normal(*weight.shape, seed=1 + step))
            ops.assign(moment, 0.9 * moment + gradient)
            ops.assign(weight, weight - 0.1 * moment)
    return {weight.name: weight.asnumpy() for weight in weights}


def cloned_state() -> Arrays:
    """Return name → weight after five steps of momentum by hand; its state, made by ``clone``
    alone, starts as a copy of the weights."""
    return momentum_by_hand()


def cloned_state_equal() -> Arrays:
    """Run the probe "The state of an optimizer of one's own" in MindSpore, written to agree with
    PyTorch, and return name → weight after five steps. MindSpore:
    `parameters.clone(prefix="moment", init="zeros")`."""
    return momentum_by_hand(init="zeros")


def loss_scale_overflow() -> NDArray:
    """Run the probe "A step with overflown gradients" in MindSpore and return the weight (3,) after
    the step. Loss scalers only scale; an optimizer called with such gradients writes them into the
    weights."""
    weight = ones_parameter("weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    scaler = amp.StaticLossScaler(1024.0)
    loss = lambda: scaler.scale((weight * 1e38).sum())  # noqa: E731
    gradients = scaler.unscale(ms.grad(loss, None, optimizer.parameters)())
    optimizer(gradients)
    return weight.asnumpy()


def loss_scale_overflow_equal() -> NDArray:
    """Run the probe "A step with overflown gradients" in MindSpore, written to agree with PyTorch,
    and return the weight (3,) after the step. MindSpore: `if amp.all_finite(gradients):
    optimizer(gradients)`."""
    weight = ones_parameter("weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    scaler = amp.StaticLossScaler(1024.0)
    loss = lambda: scaler.scale((weight * 1e38).sum())  # noqa: E731
    gradients = scaler.unscale(ms.grad(loss, None, optimizer.parameters)())
    if amp.all_finite(gradients):
        optimizer(gradients)
    return weight.asnumpy()
