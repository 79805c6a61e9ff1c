"""The torch optimizers follow PyTorch's conventions: references, groups, schedulers, state,
closures."""

from __future__ import annotations

import copy
import doctest
import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dualml.algorithms import optim as rules  # noqa: E402
from dualml.common.errors import Unsupported, UserError  # noqa: E402
from dualml_torch.algorithms.optim import (  # noqa: E402
    GD,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    RMSprop,
    base,
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


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


def train(net: torch.nn.Module, opt: Any, steps: int, first: int = 0, after: Any = None) -> None:
    for step in range(first, first + steps):
        x = torch.randn(16, 5, generator=torch.Generator().manual_seed(step))
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
        if after is not None:
            after.step()


def weights(net: torch.nn.Module) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in net.parameters()]


def equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("ours", "theirs", "fields"),
    [
        (SGD, torch.optim.SGD, {"lr": 0.05}),
        (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
        (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
        (Adam, torch.optim.Adam, {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
        (AdamW, torch.optim.AdamW, {"lr": 0.01, "eps": 1e-3, "betas": (0.8, 0.95)}),
        (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
        (RMSprop, torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
        (Adagrad, torch.optim.Adagrad, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1}),
    ],
)
def test_float64_equals_torch_optim(ours: Any, theirs: Any, fields: dict[str, Any]) -> None:
    """With PyTorch's hyperparameters the rules give PyTorch's numbers, except for rounding."""
    a, b = model().double(), model().double()
    one, two = ours(a.parameters(), **fields), theirs(b.parameters(), **fields)
    for step in range(25):
        x = torch.randn(16, 5, generator=torch.Generator().manual_seed(step)).double()
        for net, opt in ((a, one), (b, two)):
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
    for p, q in zip(weights(a), weights(b), strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-12)
    slots = {s for entry in two.state.values() for s, v in entry.items() if torch.is_tensor(v)}
    if fields.get("momentum", 1.0):
        assert set(state(one)) == slots - {"step"}


@every
def test_it_moves_every_parameter(kind: Any, fields: dict[str, Any]) -> None:
    net = model()
    before = weights(net)
    train(net, kind(net.parameters(), **fields), 1)
    assert all((a != b).any() for a, b in zip(before, weights(net), strict=True))


@every
def test_state_dict_round_trip_continues_bit_identically(kind: Any, fields: dict[str, Any]) -> None:
    whole, part = model(), model()
    train(whole, kind(whole.parameters(), **fields), 12)
    opt = kind(part.parameters(), **fields)
    train(part, opt, 6)
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    fresh = kind(part.parameters(), **{**fields, "lr": 99.0})
    fresh.load_state_dict(torch.load(file, weights_only=True))
    train(part, fresh, 6, first=6)
    assert equal(weights(whole), weights(part))


@every
def test_named_state_round_trip_continues_bit_identically(
    kind: Any, fields: dict[str, Any]
) -> None:
    whole, part = model(), model()
    train(whole, kind(whole.parameters(), **fields), 12)
    names = [name for name, _ in part.named_parameters()]
    opt = kind(part.parameters(), **fields)
    assert state(opt, names).keys() == set(opt.spec_of_group(opt.param_groups[0]).state_keys)
    train(part, opt, 6)
    kept = state(opt, names)
    assert all(list(slot) == names for slot in kept.values())
    fresh = kind(part.parameters(), **fields)
    load_state(fresh, kept, 6, names)
    train(part, fresh, 6, first=6)
    assert equal(weights(whole), weights(part))


def test_load_state_of_step_zero_is_a_fresh_start() -> None:
    net = model()
    opt = Adam(net.parameters(), lr=0.01)
    train(net, opt, 3)
    load_state(opt, {}, 0)
    net.load_state_dict(model().state_dict())
    train(net, opt, 3)
    other = model()
    train(other, Adam(other.parameters(), lr=0.01), 3)
    assert equal(weights(net), weights(other))


def test_load_state_names_what_is_missing() -> None:
    opt = Adam(model().parameters(), lr=0.01)
    with pytest.raises(UserError, match=r"exp_avg of 0 must have shape \(7, 5\); received None"):
        load_state(opt, {}, 3)
    wrong = {"exp_avg": {"a": np.zeros((2, 2))}}
    with pytest.raises(UserError, match=r"received \(2, 2\)"):
        load_state(opt, wrong, 3, ["a", "b", "c", "d"])
    with pytest.raises(UserError, match="4 parameters, 1 names"):
        state(opt, ["a"])


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: t / 5),  # starts at 0
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=11),  # momentum too
    ],
    ids=["step", "cosine", "lambda", "onecycle"],
)
@pytest.mark.parametrize("pair", [(SGD, torch.optim.SGD), (Adam, torch.optim.Adam)])
def test_torch_schedulers(scheduler: Any, pair: tuple[Any, Any]) -> None:
    fields = {"lr": 0.05, "momentum": 0.9} if pair[0] is SGD else {"lr": 0.01, "eps": 1e-3}
    ends = []
    for kind in pair:
        net = model().double()
        net.forward = lambda x, f=net.forward: f(x.double())
        opt = kind(net.parameters(), **fields)
        train(net, opt, 10, after=scheduler(opt))
        ends.append(weights(net))
    for p, q in zip(*ends, strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-12)


def test_groups_override_any_hyperparameter() -> None:
    net, other = model(), model()
    first, last = list(net[0].parameters()), list(net[2].parameters())
    opt = Adam(
        [{"params": first}, {"params": last, "lr": 0.1, "eps_form": "hat", "weight_decay": 0.5}],
        lr=0.01,
        eps=1e-3,
    )
    opts = [
        Adam(other[0].parameters(), lr=0.01, eps=1e-3),
        Adam(other[2].parameters(), lr=0.1, eps=1e-3, eps_form="hat", weight_decay=0.5),
    ]
    for _ in range(5):
        x = torch.randn(16, 5)
        for n in (net, other):
            n.zero_grad()
            n(x).square().mean().backward()
        opt.step()
        for o in opts:
            o.step()
    assert equal(weights(net), weights(other))


def test_a_refused_group_is_not_added() -> None:
    opt = SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    new = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(UserError, match="momentum must satisfy 0 <= momentum <= 1"):
        opt.add_param_group({"params": [new], "momentum": 1.5})
    assert len(opt.param_groups) == 1
    opt.add_param_group({"params": [new], "lr": 1})
    assert opt.param_groups[1]["lr"] == 1.0


def test_the_rule_validates() -> None:
    p = [torch.nn.Parameter(torch.ones(2))]
    with pytest.raises(UserError, match="lr must satisfy 0 < lr"):
        SGD(p, lr=-1.0)
    with pytest.raises(UserError, match="did you mean 'betas'"):
        Adam(p, lr=0.1, beta=(0.9, 0.9))
    with pytest.raises(UserError, match="needs lr"):
        Adam(p)
    with pytest.raises(UserError, match="amsgrad"):
        Adam(p, lr=0.1, amsgrad=True)
    with pytest.raises(UserError, match="complex"):
        SGD([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)


def test_sparse_gradients_are_refused() -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(UserError, match="sparse=False"):
        SGD(table.parameters(), lr=0.1).step()


def test_closure_is_evaluated_with_gradients_and_its_loss_returned() -> None:
    net = model()
    opt = SGD(net.parameters(), lr=0.1)
    x = torch.randn(8, 5)

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    first, second = opt.step(closure), opt.step(closure)
    assert second.item() < first.item()
    assert SGD(net.parameters(), lr=0.1).step() is None


def test_a_parameter_without_gradient_is_skipped_and_counts_its_own_steps() -> None:
    """The undampened first buffer and Adam's bias correction refer to a parameter's own first
    step."""
    early, late = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    opt = Adam([early, late], lr=0.1, eps=0.0)
    early.grad = torch.ones(3)
    opt.step()
    opt.step()
    assert late.tolist() == [1.0] * 3
    assert late not in opt.state
    late.grad = torch.full((3,), -2.0)
    opt.step()
    torch.testing.assert_close(late.detach(), torch.full((3,), 1.1))
    assert [opt.state[p]["step"] for p in (early, late)] == [3, 1]


def test_zero_grad_sets_to_none() -> None:
    net = model()
    opt = SGD(net.parameters(), lr=0.1)
    train(net, opt, 1)
    opt.zero_grad()
    assert all(p.grad is None for p in net.parameters())


@every
def test_non_contiguous_parameters_and_the_gradient_is_left_alone(
    kind: Any, fields: dict[str, Any]
) -> None:
    plain = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4) + 1)
    turned = torch.nn.Parameter((torch.arange(12.0).reshape(3, 4) + 1).t().contiguous().t())
    assert not turned.is_contiguous()
    opts = [kind([p], **fields) for p in (plain, turned)]
    for _ in range(3):
        for p, opt in zip((plain, turned), opts, strict=True):
            p.grad = torch.linspace(-1, 1, 12).reshape(3, 4)
            opt.step()
            assert torch.equal(p.grad, torch.linspace(-1, 1, 12).reshape(3, 4))
    torch.testing.assert_close(plain, turned, rtol=1e-6, atol=1e-7)


@every
@pytest.mark.parametrize("eps", [1e-8, 0.0])
def test_large_tensors_take_the_same_steps_as_small_ones(
    kind: Any, fields: dict[str, Any], eps: float
) -> None:
    """Tensors above the cache size are updated one by one, in blocks with reused scratch memory;
    the root of the state's zeros is rounded away where eps hides it."""
    fields = fields if kind is GD else {**fields, "weight_decay": 0.1}
    if eps == 0.0 and "eps" not in kind.rule_type.__dataclass_fields__:
        pytest.skip("a rule without eps")
    if kind.rule_type.__dataclass_fields__.get("eps"):
        fields = {**fields, "eps": eps}
    rows = [0, 1, 300, 598, 599]  # of the first block and of the last, with numbers and without
    big = torch.nn.Parameter(torch.randn(600, 600, generator=torch.Generator().manual_seed(0)))
    cut = [torch.nn.Parameter(row.clone()) for row in big.detach()[rows]]
    one, two = kind([big], **fields), kind(cut, **fields)
    assert big.numel() > base.BLOCK * torch.get_num_threads()
    for step in range(4):
        g = torch.randn(600, 600, generator=torch.Generator().manual_seed(step))
        g[[1, 598]] = 0
        if step % 2:
            g = g.t().contiguous().t()  # of another layout: no blocks
        big.grad = g
        for p, row in zip(cut, g[rows], strict=True):
            p.grad = row.clone()
        one.step()
        two.step()
    ours, theirs = big.detach()[rows], torch.stack(cut).detach()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7, equal_nan=True)


def test_copies_go_on_alone() -> None:
    net = model()
    opt = Adam(net.parameters(), lr=0.01, compiled=False)
    train(net, opt, 3)
    twin, twin_opt = copy.deepcopy((net, opt))
    train(net, opt, 3, first=3)
    train(twin, twin_opt, 3, first=3)
    assert equal(weights(net), weights(twin))


def test_compiled_survives_frozen_layers_schedules_and_copies() -> None:
    eager, compiled = model(), model()
    opts = [AdamW(n.parameters(), lr=0.01, compiled=n is compiled) for n in (eager, compiled)]
    for net, opt in zip((eager, compiled), opts, strict=True):
        train(net, opt, 3, after=torch.optim.lr_scheduler.StepLR(opt, 1, 0.5))
        net[0].requires_grad_(False)
        train(net, opt, 3, first=3)
    for p, q in zip(weights(eager), weights(compiled), strict=True):
        np.testing.assert_allclose(p, q, rtol=0, atol=1e-6)
    assert copy.deepcopy(opts[1]).compiled


def test_factory_picks_by_the_rule_and_refuses_unknown_rules() -> None:
    p = [torch.nn.Parameter(torch.ones(2))]
    made = optimizer(rules.AdamW(lr=0.1, betas=(0.8, 0.9)), p)
    assert isinstance(made, AdamW)
    assert isinstance(made, torch.optim.Optimizer)
    assert made.param_groups[0]["betas"] == (0.8, 0.9)

    class UnknownRule(rules.SGD):
        name = "other"

    with pytest.raises(Unsupported, match="'other'"):
        optimizer(UnknownRule(lr=0.1), p)


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop", "adagrad"])
def test_examples_in_docstrings(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"dualml_torch.algorithms.optim.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_a_large_shard_of_a_tensor_is_updated(tmp_path: Path) -> None:
    """Parameters of FSDP2 are DTensors, for which no scratch of their shape can be taken from
    another."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        start, g = torch.randn(600, 600), torch.randn(600, 600)
        results = []
        for shard in (True, False):
            whole = start.clone()
            w = torch.nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]) if shard else whole)
            w.grad = distribute_tensor(g, mesh, [Shard(0)]) if shard else g.clone()
            Adam([w], lr=0.1).step()
            results.append(w.full_tensor() if shard else w.data)
        assert torch.equal(*results)
    finally:
        destroy_process_group()
