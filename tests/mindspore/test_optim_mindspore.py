"""The MindSpore optimizers follow MindSpore's conventions: modes, learning rates, groups,
resuming."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import nn, ops  # noqa: E402

from dualml.algorithms import optim as rules  # noqa: E402
from dualml.common.errors import Unsupported, UserError  # noqa: E402
from dualml_ms.algorithms.optim import (  # noqa: E402
    GD,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    RMSprop,
    load_state,
    optimizer,
    state,
)

ALL = [
    (GD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    (Adam, {"lr": 0.01}),
    (AdamW, {"lr": 0.01, "eps_form": "hat"}),
    (RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9}),
    (Adagrad, {"lr": 0.1, "initial_accumulator": 0.1}),
]
every = pytest.mark.parametrize(("kind", "fields"), ALL, ids=lambda x: getattr(x, "__name__", ""))


@pytest.fixture(params=["graph", "pynative"], autouse=True)
def mode(request: pytest.FixtureRequest) -> str:
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return request.param


def parameters(**shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = shapes or {"weight": (3, 4), "bias": (4,)}
    return [ms.Parameter(tensor(rng.normal(size=s)), name=n) for n, s in shapes.items()]


def tensor(array: Any) -> Any:
    return ms.Tensor(np.asarray(array, np.float32))


def gradients(params: list[Any], step: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(step + 1)
    return tuple(tensor(rng.normal(size=p.shape)) for p in params)


def train(opt: Any, params: list[Any], steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        opt(gradients(params, step))


def values(params: list[Any]) -> list[np.ndarray]:
    return [p.asnumpy().copy() for p in params]


def arrays_equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def reference(rule: rules.OptimizerSpec, params: list[Any], rates: list[float]) -> list[np.ndarray]:
    """Return the parameters after the float64 recurrence with these learning rates."""
    now = {p.name: p.asnumpy().astype(np.float64) for p in params}
    kept = rule.init(now)
    for step, rate in enumerate(rates):
        g = {
            p.name: t.asnumpy().astype(np.float64)
            for p, t in zip(params, gradients(params, step), strict=True)
        }
        now, kept = rule.update(now, g, kept, step + 1, rate)
    return list(now.values())


def close(params: list[Any], expected: list[np.ndarray]) -> None:
    for found, want in zip(values(params), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=0, atol=2e-6)


@every
def test_it_is_native_and_moves_every_parameter(kind: Any, fields: dict[str, Any]) -> None:
    params = parameters()
    before = values(params)
    opt = kind(params, **fields)
    assert isinstance(opt, nn.Optimizer)
    train(opt, params, 1)
    assert all((a != b).any() for a, b in zip(before, values(params), strict=True))
    assert opt.global_step.asnumpy().tolist() == [1]


def test_an_accumulator_begins_where_the_rule_says() -> None:
    opt = Adagrad(parameters(), lr=0.1, initial_accumulator=0.1)
    assert all((slot.asnumpy() == np.float32(0.1)).all() for slot in opt.sum)


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 2, weight_init="ones")

    def construct(self, x):
        return ops.square(self.dense(x)).mean()


class Step(nn.Cell):
    """Forward, backward and update in one cell."""

    def __init__(self, net: nn.Cell, opt: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.opt = opt
        self.gradient = ops.value_and_grad(net, None, opt.parameters)

    def construct(self, x):
        loss, grads = self.gradient(x)
        return ops.depend(loss, self.opt(grads))


@every
def test_inside_a_training_cell_the_loss_falls(kind: Any, fields: dict[str, Any]) -> None:
    net = Net()
    step = Step(net, kind(net.trainable_params(), **{**fields, "lr": 0.01}))
    x = tensor(np.random.default_rng(0).normal(size=(16, 4)))
    losses = [float(step(x).asnumpy()) for _ in range(15)]
    assert losses[-1] < 0.95 * losses[0]
    assert step.opt.global_step.asnumpy().tolist() == [15]


def test_inside_a_jit_function() -> None:
    params = parameters()
    opt = Adam(params, lr=0.01, eps=1e-3)
    other = parameters()
    plain = Adam(other, lr=0.01, eps=1e-3)

    @ms.jit
    def step(a, b):
        return opt((a, b))

    for i in range(5):
        step(*gradients(params, i))
    train(plain, other, 5)
    close(params, values(other))


@every
def test_named_state_round_trip_continues_bit_identically(
    kind: Any, fields: dict[str, Any]
) -> None:
    whole, part = parameters(), parameters()
    train(kind(whole, **fields), whole, 12)
    names = ["fc.weight", "fc.bias"]
    opt = kind(part, **fields)
    train(opt, part, 6)
    kept = state(opt, names)
    assert all(list(slot) == names for slot in kept.values())
    fresh = kind(part, **fields)
    load_state(fresh, kept, 6, names)
    assert fresh.global_step.asnumpy().tolist() == [6]
    train(fresh, part, 6, first=6)
    assert arrays_equal(values(whole), values(part))


def test_load_state_of_step_zero_is_a_fresh_start() -> None:
    params, other = parameters(), parameters()
    start = values(params)
    opt = Adagrad(params, lr=0.1, initial_accumulator=0.5)
    train(opt, params, 3)
    load_state(opt, {}, 0)
    for p, value in zip(params, start, strict=True):
        p.set_data(tensor(value))
    train(opt, params, 3)
    train(Adagrad(other, lr=0.1, initial_accumulator=0.5), other, 3)
    assert arrays_equal(values(params), values(other))


def test_load_state_names_what_is_missing() -> None:
    opt = Adam(parameters(), lr=0.01)
    with pytest.raises(UserError, match=r"exp_avg of 0 must have shape \(3, 4\); received None"):
        load_state(opt, {}, 3)
    with pytest.raises(UserError, match=r"received \(2, 2\)"):
        load_state(opt, {"exp_avg": {"a": np.zeros((2, 2))}}, 3, ["a", "b"])
    with pytest.raises(UserError, match="2 parameters, 1 names"):
        state(opt, ["a"])


@pytest.mark.parametrize("name", ["bn.gamma", "bn.beta", "alphabeta"])
def test_weight_decay_acts_on_every_name(name: str) -> None:
    """Weight decay applies to all parameters: nn.Optimizer skips names with beta or gamma, the rule
    does not."""
    for kind in (SGD, Adam, AdamW, RMSprop, Adagrad):
        params = parameters(**{name: (5,)})
        expected = reference(kind.rule_type(lr=0.05, weight_decay=0.5), params, [0.05] * 5)
        train(kind(params, lr=0.05, weight_decay=0.5), params, 5)
        close(params, expected)


RATES = [0.1, 0.05, 0.2, 0.0, 0.1]


@pytest.mark.parametrize(
    "rates", [RATES, np.array(RATES), tuple(RATES)], ids=["list", "array", "tuple"]
)
def test_one_rate_per_step(rates: Any) -> None:
    for kind in (SGD, Adam):
        params = parameters()
        expected = reference(kind.rule_type(lr=0.1), params, RATES)
        train(kind(params, rates), params, 5)
        close(params, expected)


def test_a_list_of_rates_that_ends_is_an_error() -> None:
    params = parameters()
    opt = SGD(params, [0.1, 0.1])
    train(opt, params, 2)
    before = values(params)
    with pytest.raises(RuntimeError):
        train(opt, params, 1)
    assert arrays_equal(before, values(params))


def test_a_learning_rate_schedule() -> None:
    params = parameters()
    schedule = nn.ExponentialDecayLR(0.1, 0.5, 1)
    expected = reference(rules.SGD(lr=0.1), params, [0.1 * 0.5**t for t in range(5)])
    train(SGD(params, schedule), params, 5)
    close(params, expected)


def test_groups_override_decay() -> None:
    a, b = parameters()
    wanted = [
        reference(rules.SGD(lr=0.1, weight_decay=0.1), [a, b], [0.1] * 5)[0],
        reference(rules.SGD(lr=0.1, weight_decay=0.5), [a, b], [0.1] * 5)[1],
    ]
    groups = [{"params": [a]}, {"params": [b], "weight_decay": 0.5}]
    train(SGD(groups, lr=0.1, weight_decay=0.1), [a, b], 5)
    close([a, b], wanted)


def test_a_fixed_rate_beside_a_changing_one_keeps_its_digits() -> None:
    """Small values are exact: MindSpore's own optimizers compute 1e-4 + 1 − 1, an error of
    1.7e-4."""
    a, b = parameters()
    for p in (a, b):
        p.set_data(ms.ops.zeros_like(p))
    wanted = reference(rules.SGD(lr=1e-4), [a, b], [1e-4] * 5)
    train(SGD([{"params": [a]}, {"params": [b], "lr": [1e-4] * 5}], lr=1e-4), [a, b], 5)
    for p, want in zip((a, b), wanted, strict=True):
        np.testing.assert_allclose(p.asnumpy(), want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_group_rates_differ() -> None:
    a, b = parameters()
    wanted = [
        reference(rules.Adam(lr=0.1), [a, b], [0.1] * 5)[0],
        reference(rules.Adam(lr=0.1), [a, b], RATES)[1],
    ]
    train(Adam([{"params": [a]}, {"params": [b], "lr": RATES}], lr=0.1), [a, b], 5)
    close([a, b], wanted)


def test_what_the_rule_has_no_field_for_is_refused() -> None:
    a, b = parameters()
    with pytest.raises(UserError, match="gd: the rule has no weight decay"):
        GD([{"params": [a, b], "weight_decay": 0.1}], lr=0.1)
    with pytest.raises(UserError, match="no gradient centralization"):
        SGD([{"params": [a, b], "grad_centralization": True}], lr=0.1)
    with pytest.raises(UserError, match="weight_decay of a group must be a number"):
        SGD([{"params": [a, b], "weight_decay": nn.ExponentialDecayLR(0.1, 0.5, 1)}], lr=0.1)


def test_the_rule_validates() -> None:
    params = parameters()
    with pytest.raises(UserError, match="lr must satisfy 0 < lr"):
        SGD(params, lr=-1.0)
    with pytest.raises(UserError, match="learning rates must be finite and >= 0"):
        SGD(params, [0.1, -0.1])
    with pytest.raises(UserError, match="learning rates must be finite and >= 0"):
        SGD(params, [])
    with pytest.raises(UserError, match="did you mean 'betas'"):
        Adam(params, lr=0.1, beta=(0.9, 0.9))
    with pytest.raises(UserError, match="needs lr"):
        Adam(params)
    with pytest.raises(UserError, match="loss_scale"):
        Adam(params, lr=0.1, loss_scale=2.0)
    half = [ms.Parameter(ms.Tensor(np.ones(2), ms.float16), name="half")]
    with pytest.raises(UserError, match="must be float32; half is Float16"):
        SGD(half, lr=0.1)


def test_a_gradient_too_few_is_an_error() -> None:
    params = parameters()
    with pytest.raises(ValueError, match="one gradient per parameter"):
        SGD(params, lr=0.1)(gradients(params, 0)[:1])


def test_factory_picks_by_the_rule_and_refuses_unknown_rules() -> None:
    params = parameters()
    made = optimizer(rules.AdamW(lr=0.1, betas=(0.8, 0.9)), params, [0.1, 0.2])
    assert isinstance(made, AdamW)
    assert made.rule == rules.AdamW(lr=0.1, betas=(0.8, 0.9))

    class UnknownRule(rules.SGD):
        name = "other"

    with pytest.raises(Unsupported, match="'other'"):
        optimizer(UnknownRule(lr=0.1), params)


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop", "adagrad"])
def test_examples_in_docstrings(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"dualml_ms.algorithms.optim.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
