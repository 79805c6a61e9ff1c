"""Causes beyond a single setting: order, layout, sharing, gradients, own optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from causes_cases import Net, inputs, mutation_keys, searched
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.mutation import Mutation, MutationContext
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.models.operations import Operation
from dualml_torch.models import losses, step
from dualml_torch.parity.causes.call_mutations import call_mutated
from dualml_torch.parity.causes.explore import Explorer, MutatingRecorder
from dualml_torch.parity.causes.size_checks import with_size_checks

pytestmark = pytest.mark.usefixtures("one_thread")


class Residual(nn.Module):
    """Two blocks that add in place and then clip, like ResNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.relu = nn.ReLU(inplace=True)

    def block(self, layer: nn.Module, x: Any) -> Any:
        y = layer(x)
        y += x
        return self.relu(y)

    def forward(self, x: Any) -> Any:
        return self.head(self.block(self.second, self.block(self.first, x))[:, 0])


class ReluBeforeAdd(Residual):
    def block(self, layer: nn.Module, x: Any) -> Any:
        y = self.relu(layer(x))
        return y + x


class Carry(Net):
    def gated(self, x: Any, y: Any) -> Any:
        g = torch.sigmoid(self.other(x))
        return g * y + (1 - g) * x.tanh()

    def forward(self, x: Any) -> Any:
        return self.head(self.gated(x, torch.relu(self.inner(x)) * 2)[:, 0])


class CarryOther(Carry):
    def gated(self, x: Any, y: Any) -> Any:
        g = torch.sigmoid(self.other(x))
        return g * x.tanh() + (1 - g) * y


class Waves(Net):
    """A table of numbers that is no parameter."""

    table = (0.0, 1.0, 0.5, 2.0, -1.0, 3.0)

    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) + torch.tensor(self.table).sin())[:, 2])


class WavesOther(Waves):
    table = (0.3, 1.0, 0.7, 1.9, 1.0, 2.0)


class Rotary(Net):
    """Rotary embedding of neighbouring pairs; only products of queries and keys are visible."""

    def pairs(self, x: Any) -> tuple[Any, Any]:
        return x[..., 0::2], x[..., 1::2]

    def rotate(self, x: Any) -> Any:
        a, b = self.pairs(x)
        angle = 0.3 * torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.5, 0.1])
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x: Any) -> Any:
        q, k = self.rotate(self.inner(x)), self.rotate(self.other(x))
        return self.head((torch.softmax(q @ k.transpose(1, 2), -1) @ x)[:, 0])


class RotaryHalves(Rotary):
    def pairs(self, x: Any) -> tuple[Any, Any]:
        return x[..., :3], x[..., 3:]


class ExpGate(Net):
    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) * torch.exp(self.other(x)))[:, 0])


class SoftplusGate(ExpGate):
    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) * F.softplus(self.other(x)))[:, 0])


class Gated(Net):
    def forward(self, x: Any) -> Any:
        return self.head(F.glu(torch.cat([self.inner(x), self.other(x)], -1))[:, 0])


class GatedSilu(Gated):
    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) * F.silu(self.other(x)))[:, 0])


class Masked(Net):
    def forward(self, x: Any) -> Any:
        mask = torch.tensor([0.0, 0.0, -1.0, 0.0, 1.0, 0.0])
        return self.head(F.scaled_dot_product_attention(self.inner(x), x, x, mask)[:, 0])


class Unmasked(Masked):
    def forward(self, x: Any) -> Any:
        return self.head(F.scaled_dot_product_attention(self.inner(x), x, x)[:, 0])


class SharedLayer(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.last = self.inner

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.last(torch.tanh(self.inner(x))))[:, 0])


class SeparateLayers(SharedLayer):
    """A model with two layers where the other uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 6)


class SharedValue(Net):
    """A value that two functions use, one of them several times."""

    def total(self, y: Any) -> Any:
        return sum(torch.logsumexp(y[:, i], -1) for i in range(3))

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return self.head(y[:, 0] + self.total(y)[:, None])


class SharedValueDetached(SharedValue):
    def total(self, y: Any) -> Any:
        return super().total(y.detach())


class Normed(Net):
    def normed(self, x: Any) -> Any:
        return F.layer_norm(x, (6,), self.norm.weight, self.norm.bias)

    def forward(self, x: Any) -> Any:
        return self.head(self.normed(self.inner(x))[:, 0])


class NormedCut(Normed):
    def normed(self, x: Any) -> Any:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True).detach()
        y = (x - mean) * torch.rsqrt(variance + 1e-5)
        return y * self.norm.weight + self.norm.bias


@pytest.mark.parametrize(
    ("base", "kind", "wanted"),
    [
        (Residual, ReluBeforeAdd, ("order", "swap", 0, 1)),
        (ExpGate, SoftplusGate, ("function", "instead", "", ("softplus",))),
        (Gated, GatedSilu, ("function", "form", "silu", True)),
        (Masked, Unmasked, ("missing", "operand", 0, "op:4")),
        (Normed, NormedCut, ("gradient", "form", "detached_variance", True)),
    ],
)
def test_the_planted_mistake_is_named(
    base: type[nn.Module], kind: type[nn.Module], wanted: tuple[Any, ...]
) -> None:
    found = searched(kind, base=base)
    assert found.equal
    assert wanted in mutation_keys(found)


@pytest.mark.parametrize(
    ("base", "kind", "wanted"),
    [
        (Carry, CarryOther, ("extra", "input")),
        (Waves, WavesOther, ("constant", "numbers")),
        (Rotary, RotaryHalves, ("layout", "rotary_halves")),
        (SharedValue, SharedValueDetached, ("gradient", "detach")),
    ],
)
def test_what_is_wrong_in_several_calls_is_named(
    base: type[nn.Module], kind: type[nn.Module], wanted: tuple[str, str]
) -> None:
    found = searched(kind, base=base)
    assert found.equal
    (cause,) = found.causes
    assert wanted in {one[:2] for one in mutation_keys(found)}
    assert any(len(one.sites) > 1 for one in cause.alterations) or wanted[1] == "numbers"


@pytest.mark.parametrize(
    ("base", "kind", "action"),
    [(SharedLayer, SeparateLayers, "untie"), (SeparateLayers, SharedLayer, "share")],
)
def test_one_layer_for_two_is_named(
    base: type[nn.Module], kind: type[nn.Module], action: str
) -> None:
    found = searched(kind, base=base)
    assert found.equal
    assert action in {one[1] for one in mutation_keys(found)}


class CustomAdam(torch.optim.Optimizer):
    """Adam as users write it."""

    def __init__(self, parameters: Any, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": 0.01, "eps": 1e-3, "weight_decay": weight_decay})
        self.done = 0

    def root(self, v: Any, eps: float) -> Any:
        root = v.sqrt()
        return root + eps

    def decayed(self, p: Any, decay: float) -> Any:
        p.mul_(1 - 0.01 * decay)
        return p.grad

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.done += 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                g = self.decayed(p, group["weight_decay"])
                state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
                state["v"] = 0.99 * state.get("v", 0) + 0.01 * g * g
                m, v = state["m"] / (1 - 0.9**self.done), state["v"] / (1 - 0.99**self.done)
                p.sub_(group["lr"] * m / self.root(v, group["eps"]))


class EpsInside(CustomAdam):
    def root(self, v: Any, eps: float) -> Any:
        return (v + eps).sqrt()


class Coupled(CustomAdam):
    def decayed(self, p: Any, decay: float) -> Any:
        return p.grad + decay * p


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (CustomAdam, EpsInside, ("line:swap", "add")),
        (lambda p: CustomAdam(p, 0.5), lambda p: Coupled(p, 0.5), ("optimizer", "decay:coupled")),
    ],
)
def test_a_line_of_a_users_own_optimizer_is_named(
    ours: Any, theirs: Any, wanted: tuple[str, str]
) -> None:
    found = searched(Net, theirs, 2, ours=ours)
    assert found.equal
    assert wanted in {(one[1], one[2]) for one in mutation_keys(found)}


def test_a_first_update_of_nothing_is_a_schedule() -> None:
    class Warm(torch.optim.SGD):
        shift, done = 1, 0

        def step(self, closure: Any = None) -> Any:
            self.param_groups[0]["lr"] = 0.1 * (self.done + self.shift) / 4
            self.done += 1
            return super().step(closure)

    class FromZero(Warm):
        shift = 0

    found = searched(Net, lambda p: FromZero(p, lr=0.1), 3, ours=lambda p: Warm(p, lr=0.1))
    assert found.equal
    ((_, _, argument, factors),) = mutation_keys(found)[:1]
    assert argument == "lr_schedule"
    assert factors == pytest.approx((0, 0.5, 2 / 3), abs=1e-5)


def test_alterations_of_what_writes_leave_the_kept_values_alone() -> None:
    class Batch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(x[:, 0]))

    torch.manual_seed(0)
    model = Batch()
    recorder = MutatingRecorder(model, None, None, steps=1, draws=0)
    loss = losses()["cross_entropy"]
    explorer = Explorer(recorder, lambda r: step(model, loss, None, r), inputs(), 1)
    trace = explorer.run([])
    explorer.record([])
    replay = explorer.replay
    assert replay is not None
    kept = {name: value.clone() for name, value in replay.values.items()}
    site = next(one for one in trace.operations if one.name == "batch_norm")
    shapes = {name: tuple(value.shape) for name, value in kept.items()}
    around = MutationContext((), (), shapes, {}, ())
    given = [shapes[name] for name in site.inputs]
    changes = list(candidate_mutations(site, given, around))
    assert {"exchange", "operand"} <= {one.action for one in changes}
    for change in changes:
        try:
            explorer.probe(change, 2, lambda name, array: True)
        except Exception:
            continue
    assert all(torch.equal(value, replay.values[name]) for name, value in kept.items())


def test_cut_outputs_of_a_transposed_convolution() -> None:
    x, weight = torch.randn(1, 2, 4, 4), torch.randn(2, 3, 3, 3)
    given = {"stride": 2, "padding": 1, "output_padding": 1}
    whole = F.conv_transpose2d(x, weight, stride=2)  # 9 × 9
    for way, before in (("same", 0), ("same_before", 1)):
        change = Mutation("attribute", "pad", (0,), "conv_transpose2d", "padding", way)
        cut = call_mutated(change, F.conv_transpose2d, "conv_transpose2d", (x, weight), given)
        assert torch.equal(cut, whole[..., before : before + 8, before : before + 8])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_convolution_padded_with_values_of_its_input(mode: str) -> None:
    x, weight = torch.randn(1, 2, 5, 6), torch.randn(3, 2, 3, 3)
    change = Mutation("attribute", "pad", (0,), "conv2d", "padding", mode)
    y = call_mutated(change, F.conv2d, "conv2d", (x, weight), {"padding": [1, 1], "stride": 2})
    layer = nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode=mode, bias=False)
    layer.weight.data = weight
    assert torch.equal(y, layer(x))


def test_shared_heads_one_after_the_other() -> None:
    k = torch.randn(2, 2, 5, 3)
    change = Mutation("layout", "form", (0,), "repeat_interleave", "tiled", True)
    y = call_mutated(change, torch.Tensor.repeat_interleave, "repeat_interleave", (k, 2, 1), {})
    assert torch.equal(y, k.repeat(1, 2, 1, 1))


def test_a_packed_sequence_can_be_run_again() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.head = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            lengths = torch.tensor([6, 5, 3, 2])
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            return self.head(self.gru(packed)[1][0])

    class Doubled(Packed):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    found = searched(Doubled, base=Packed)
    assert found.equal
    assert found.causes


def test_numbers_of_an_operation_are_read_as_settings() -> None:
    one = Operation(0, "conv1d", ("op:0",), {"dilation": [4], "padding": 8}, ((2, 3, 9),))
    pairs = {
        (c.argument, c.value)
        for c in candidate_mutations(one, [(2, 3, 9)], MutationContext((), (), {}, {}, ()))
        if c.action == "settings"
    }
    assert ("dilation and padding", (("dilation", 3), ("padding", 6))) in pairs


@pytest.mark.parametrize("sizes", [[4, 2, 1], [3, 2, 2, 1], [2, 4, 2], [8, 0], [-1, 9]])
def test_sizes_that_torch_would_believe_are_refused(sizes: list[int]) -> None:
    data, wrong = torch.zeros(8, 4), torch.tensor(sizes)
    unpack = with_size_checks(torch._VF._pad_packed_sequence, "_pad_packed_sequence")
    right = torch.tensor([3, 3, 2])
    assert unpack(data, right, False, 0.0, 3)[0].shape == (3, 3, 4)
    if sizes == [3, 2, 2, 1]:  # these are right
        assert unpack(data, wrong, False, 0.0, 4)[0].shape == (4, 3, 4)
        return
    with pytest.raises(ValueError, match="rows"):
        unpack(data, wrong, False, 0.0, 3)


def test_lengths_beyond_the_data_are_refused() -> None:
    pack = with_size_checks(torch._VF._pack_padded_sequence, "_pack_padded_sequence")
    assert pack(torch.zeros(5, 2, 3), torch.tensor([5, 3]), False)[0].shape == (8, 3)
    for lengths in ([6, 3], [5, 3, 1]):
        with pytest.raises(ValueError, match="at most 5"):
            pack(torch.zeros(5, 2, 3), torch.tensor(lengths), False)


@pytest.mark.parametrize("shape", [(1,), (1, 1, 8), (24, 1), ()])
def test_a_length_that_a_weight_norm_would_believe_is_refused(shape: tuple[int, ...]) -> None:
    v = torch.ones(24, 6, 8)
    norm = with_size_checks(torch._weight_norm, "_weight_norm")
    assert norm(v, torch.ones(24, 1, 1), 0).shape == norm(v, torch.ones(1, 1, 8), 2).shape
    assert norm(v, torch.ones(1), -1).shape == v.shape
    with pytest.raises(ValueError, match="no length"):
        norm(v, torch.ones(shape), 0)
