"""Causes that move parts of a model, and those hidden by attention, low precision and slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from causes_cases import Net, inputs, mutation_keys, searched
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.mutation import Mutation
from dualml_torch.algorithms.optim import SGD
from dualml_torch.algorithms.parts.attention import attention
from dualml_torch.parity.causes.call_mutations import call_mutated
from dualml_torch.parity.causes.update import MutatedUpdate, describe_groups
from dualml_torch.parity.rounding import RoundingMode

pytestmark = pytest.mark.usefixtures("one_thread")


class Blocks(Net):
    """Two blocks of norm, attention and residual, followed by a rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(6) for _ in range(2)])
        self.parts = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def run_block(self, i: int, x: Any) -> Any:
        return x + torch.tanh(self.parts[i](self.norms[i](x)))

    def rotate(self, x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * 0.6 - b * 0.8, a * 0.8 + b * 0.6], -1)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v

    def forward(self, x: Any) -> Any:
        for i in range(2):
            x = self.run_block(i, x)
        q, k, v = self.inner(x), self.other(x), self.first_layer(x)
        return self.head(self.attend(self.rotate(q), self.rotate(k), v)[:, 0])


class NormBehind(Blocks):
    def run_block(self, i: int, x: Any) -> Any:
        return x + self.norms[i](torch.tanh(self.parts[i](x)))


class NormAfterAll(Blocks):
    def run_block(self, i: int, x: Any) -> Any:
        return self.norms[i](x + torch.tanh(self.parts[i](x)))


class ValuesTurned(Blocks):
    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return super().attend(q, k, self.rotate(v))


class BlockTwice(Blocks):
    def forward(self, x: Any) -> Any:
        for i in (0, 1, 1):
            x = self.run_block(i, x)
        q, k, v = self.inner(x), self.other(x), self.first_layer(x)
        return self.head(self.attend(self.rotate(q), self.rotate(k), v)[:, 0])


class OtherOrder(Blocks):
    def forward(self, x: Any) -> Any:
        for i in (1, 0):
            x = self.run_block(i, x)
        q, k, v = self.inner(x), self.other(x), self.first_layer(x)
        return self.head(self.attend(self.rotate(q), self.rotate(k), v)[:, 0])


@pytest.mark.parametrize(
    ("kind", "wanted", "calls"),
    [
        (NormBehind, "order", 2),
        (NormAfterAll, "order", 2),
        (ValuesTurned, "extra", 1),
        (BlockTwice, "extra", 1),
    ],
)
def test_a_part_that_stands_elsewhere(kind: type[nn.Module], wanted: str, calls: int) -> None:
    found = searched(kind, base=Blocks)
    (first, *_), *more = [cause.alterations for cause in found.causes]
    assert (first.kind, first.action, len(first.sites)) == (wanted, "spans", calls)
    assert found.equal
    assert not more


def test_two_blocks_in_the_other_order() -> None:
    found = searched(OtherOrder, base=Blocks)
    kinds = {(one.kind, one.action) for one in found.causes[0].alterations}
    # Their parameters have one shape: which block came first, or which weights it had.
    assert kinds <= {("order", "spans"), ("operand", "borrow"), ("operand", "parameters")}
    assert found.equal


class Fused(Net):
    causal, scale = True, None

    def mix(self, x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, is_causal=self.causal, scale=self.scale)


class OverQueries(Fused):
    def mix(self, x: Any) -> Any:
        scores = x @ x.transpose(1, 2) / 6**0.5
        seen = torch.ones(6, 6, dtype=torch.bool).tril()
        return torch.softmax(scores.masked_fill(~seen, -1e9), 1) @ x


class MaskOff(Fused):
    causal = False


class LooksAhead(Fused):
    def mix(self, x: Any) -> Any:
        seen = torch.ones(6, 6, dtype=torch.bool).tril(1)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=seen)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(OverQueries, ("attribute", "softmax")), (LooksAhead, ("mask", "tril"))],
)
def test_inside_of_fused_attention(kind: type[nn.Module], wanted: tuple[str, str]) -> None:
    found = searched(kind, base=Fused)
    assert found.equal
    assert wanted in {(one.kind, one.operation) for one in found.causes[0].alterations}


@pytest.mark.parametrize("given", [{}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}])
def test_attention_written_out_is_the_kernel(given: dict[str, Any]) -> None:
    q, k = torch.randn(2, 4, 5, 3), torch.randn(2, 2 if "enable_gqa" in given else 4, 5, 3)
    torch.testing.assert_close(
        attention(q, k, k, **given), F.scaled_dot_product_attention(q, k, k, **given)
    )
    mask = torch.rand(5, 5) > 0.5
    mask[2] = False  # nothing to look at: nought, not NaN
    if "is_causal" not in given:
        torch.testing.assert_close(
            attention(q, k, k, mask, **given),
            F.scaled_dot_product_attention(q, k, k, mask, **given),
        )


class Half(Net):
    def mix(self, x: Any) -> Any:
        scores = (x @ x.transpose(1, 2)) * self.scale
        return torch.softmax(scores.to(torch.bfloat16).float(), -1) @ x


def test_less_precision_as_it_stands() -> None:
    one = searched(Half).causes[0].alterations[0]
    assert one.kind == "dtype"


def test_a_loss_of_the_next_token() -> None:
    logits, tokens = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    wanted = F.cross_entropy(logits[:, :-1].reshape(-1, 7), tokens[:, 1:].reshape(-1))
    change = Mutation("layout", "shifted", (0,), "cross_entropy", "", 5)
    given = (logits.reshape(-1, 7), tokens.reshape(-1))
    assert torch.equal(call_mutated(change, F.cross_entropy, "cross_entropy", given, {}), wanted)


class NextTokenLoss(Net):
    """A language model that computes its loss itself."""

    def forward(self, x: Any) -> Any:
        y, wanted = self.head(x), (x[..., 0] > 0).long()
        return F.cross_entropy(
            y[:, :-1].reshape(-1, 3), wanted[:, 1:].reshape(-1), reduction="none"
        ).mean() * torch.ones(4, 3)


class NotShifted(NextTokenLoss):
    def forward(self, x: Any) -> Any:
        y, wanted = self.head(x), (x[..., 0] > 0).long()
        return F.cross_entropy(
            y.reshape(-1, 3), wanted.reshape(-1), reduction="none"
        ).mean() * torch.ones(4, 3)


def test_both_slices_left_out() -> None:
    found = searched(NotShifted, base=NextTokenLoss)
    assert found.causes[0].alterations[0].action == "whole"
    assert found.equal


class ShiftedTwice(NextTokenLoss):
    """Logits and targets that are shifted already, and once more with their rows concatenated."""

    def forward(self, x: Any) -> Any:
        y, wanted = self.head(x), (x[..., 0] > 0).long()
        outputs, targets = y[:, :-1].reshape(-1, 3), wanted[:, 1:].reshape(-1)
        return F.cross_entropy(outputs[:-1], targets[1:], reduction="none").mean() * torch.ones(
            4, 3
        )


def test_labels_that_are_shifted_twice() -> None:
    found = searched(ShiftedTwice, base=NextTokenLoss)
    assert found.equal
    assert ("layout", "shifted", "", 20) in mutation_keys(found)


def test_a_causal_convolution_keeps_its_length() -> None:
    x, weight = torch.randn(2, 3, 9), torch.randn(4, 3, 3)
    given = {"padding": 8, "dilation": 4}
    change = Mutation(
        "attribute", "settings", (0,), "conv1d", "", (("dilation", 3), ("padding", 6)), (4, 8)
    )
    y = call_mutated(change, F.conv1d, "conv1d", (x, weight), given)
    assert y.shape == F.conv1d(x, weight, **given).shape
    wanted = F.conv1d(x, weight, padding=6, dilation=3)[..., :9]
    torch.testing.assert_close(y[..., :9], wanted)


class Limited(torch.optim.Adadelta):
    """A user's optimizer that changes the weights after the rule."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.clamp_(-0.2, 0.2)


def test_a_formula_stands_where_the_subclass_calls_its_parent() -> None:
    p = nn.Parameter(torch.full((2,), 0.3))
    p.grad = torch.ones(2)
    optimizer = Limited([p], lr=1.0)
    step = torch.optim.Adadelta.step
    change = Mutation("optimizer", "optimizer", (), "", "form:eps_outside", True, None)
    MutatedUpdate(optimizer, [change], {id(p): "p"}).step(optimizer.step)
    assert p.tolist() == pytest.approx([0.2, 0.2])  # clamped behind the formula
    assert torch.optim.Adadelta.step is step
    assert p.grad is not None


def test_a_formula_of_adagrad_leaves_its_sum_in_the_optimizer() -> None:
    p = nn.Parameter(torch.full((2,), 0.3))
    p.grad = torch.ones(2)
    optimizer = torch.optim.Adagrad([p], lr=0.1)
    change = Mutation("optimizer", "optimizer", (), "", "form:from_tenth", True, None)
    updates = MutatedUpdate(optimizer, [change], {id(p): "p"})
    for squares in (1.1, 2.1):  # compared with the other side's state after every update
        updates.step(optimizer.step)
        assert optimizer.state[p]["sum"].tolist() == pytest.approx([squares, squares])


def test_own_numbers_of_a_rule_are_not_tried() -> None:
    p = nn.Parameter(inputs()[0][0])
    assert describe_groups(SGD([p], lr=0.1), {id(p): "p"})[0]["own"] == {}


class Loop(Net):
    """A state that each step computes from that of the step before."""

    def forward(self, x: Any) -> Any:
        state, seen = torch.zeros(4, 6), []
        for t in range(6):
            state, seen = self.stepped(state, x[:, t], seen)
        return self.head(torch.stack(seen, 1).sum(1))

    def stepped(self, state: Any, x: Any, seen: list[Any]) -> tuple[Any, list[Any]]:
        state = 0.9 * state + torch.tanh(self.inner(x))
        return state, [*seen, state * self.other(x)]


class ReadsBefore(Loop):
    def stepped(self, state: Any, x: Any, seen: list[Any]) -> tuple[Any, list[Any]]:
        seen = [*seen, state * self.other(x)]
        return 0.9 * state + torch.tanh(self.inner(x)), seen


def test_the_state_of_the_step_before() -> None:
    found = searched(ReadsBefore, base=Loop)
    assert "earlier" in {one.action for one in found.causes[0].alterations}
    assert found.equal


class SplitNet(Net):
    def forward(self, x: Any) -> Any:
        a, b, c = self.inner(x).split([2, 2, 2], -1)
        return self.head(torch.cat([self.combine_parts(a, b), c, c], -1)[:, 0])

    def combine_parts(self, a: Any, b: Any) -> Any:
        return torch.tanh(a) * b


class OtherPart(SplitNet):
    def combine_parts(self, a: Any, b: Any) -> Any:
        return torch.tanh(b) * a


def test_outputs_in_another_order() -> None:
    found = searched(OtherPart, base=SplitNet)
    actions = {one.action for cause in found.causes[:1] for one in cause.alterations}
    assert actions & {"outputs", "trade"}
    assert found.equal


class Root(Net):
    def normed(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


class RootFirst(Root):
    def normed(self, x: Any) -> Any:
        return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-3)


def test_epsilon_behind_the_root() -> None:
    found = searched(RootFirst, base=Root)
    assert ("order", "form", "eps_behind", 1e-3) in mutation_keys(found)


class Gate(Net):
    def mix(self, x: Any) -> Any:
        return x * (F.relu6(x + 3.0) / 6.0)


class Sigmoid(Gate):
    def mix(self, x: Any) -> Any:
        return x * torch.sigmoid(x)


def test_a_formula_in_the_place_of_a_function() -> None:
    found = searched(Sigmoid, base=Gate)
    one = found.causes[0].alterations[0]
    assert (one.kind, one.action, one.operation) == ("function", "spans", "sigmoid")
    assert found.equal


class Skip(Net):
    def forward(self, x: Any) -> Any:
        shortcut = self.other(self.shortcut_input(x))
        return self.head((shortcut + torch.tanh(self.inner(torch.relu(x))))[:, 0])

    def shortcut_input(self, x: Any) -> Any:
        return x


class SkipActivated(Skip):
    def shortcut_input(self, x: Any) -> Any:
        return torch.relu(x)


def test_an_operand_that_is_made_later() -> None:
    found = searched(SkipActivated, base=Skip)
    assert found.equal  # relu before the layer, or the value that relu gives later


def test_functions_that_kernels_approximate_are_moved_as_a_whole() -> None:
    x = torch.rand(50) + 0.5
    with RoundingMode(np.random.default_rng(0), 4, lambda: False):
        moved, plain = torch.log(x), torch.sqrt(x)
    ratios = (moved.double() / torch.log(x).double() - 1).abs()
    assert torch.equal(plain, torch.sqrt(x))
    assert 1e-7 < ratios.median() < 1e-6
