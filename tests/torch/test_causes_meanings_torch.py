"""Mistakes with a name, of which most are of several calls at once: the planted one is named, and a
right port beside it is equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from causes_cases import JUDGING, Net, mutation_keys, searched, trace
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dualml.parity.causes.masked_rows import ADDED
from dualml.parity.models.judge import judge_traces

pytestmark = pytest.mark.usefixtures("one_thread")


class Smooth(Net):
    """Two norms and two leaky functions, each with a setting of its own."""

    epsilons = (1e-1, 1e-5)

    def forward(self, x: Any) -> Any:
        first, second = self.epsilons
        y = F.layer_norm(0.1 * self.inner(x), (6,), eps=first).sin()
        return self.head(F.layer_norm(0.1 * self.other(y), (6,), eps=second)[:, 0])


class SmoothExchanged(Smooth):
    epsilons = (1e-5, 1e-1)


class SmoothRight(Smooth):
    def forward(self, x: Any) -> Any:
        y = nn.LayerNorm(6, self.epsilons[0], elementwise_affine=False)(0.1 * self.inner(x)).sin()
        y = nn.LayerNorm(6, self.epsilons[1], elementwise_affine=False)(0.1 * self.other(y))
        return self.head(y[:, 0])


class Residual(Net):
    """A norm that works on its argument itself, which is also the residual."""

    def scaled(self, x: Any) -> Any:
        y = x.float()
        y.mul_(torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6).detach())
        return y

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = 2 * x
            y = y + self.scaled(y).sin()
        return self.head(self.inner(y)[:, 0])


class ResidualCopied(Residual):
    def scaled(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class ResidualRight(Residual):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = 2 * x
            y = ResidualCopied.scaled(self, y)  # the residual is what the norm left there
            y = y + y.sin()
        return self.head(self.inner(y)[:, 0])


class Packed(Net):
    """An LSTM over sequences of unequal lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6, batch_first=True)

    def lengths(self) -> Any:
        return torch.tensor([6, 3, 5, 2])

    def forward(self, x: Any) -> Any:
        packed = pack_padded_sequence(x, self.lengths(), batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=6)
        return self.head(y.mean(1))


class PackedIgnored(Packed):
    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0].mean(1))


class PackedRight(Packed):
    def forward(self, x: Any) -> Any:
        keep = torch.arange(6) < self.lengths()[:, None]
        return self.head((self.lstm(x)[0] * keep[..., None]).mean(1))


class Channels(Net):
    """Normalization of three channels by constants."""

    mean, deviation = (0.485, 0.456, 0.106), (0.229, 0.624, 0.225)

    def forward(self, x: Any) -> Any:
        mean, deviation = (torch.tensor(one)[:, None] for one in (self.mean, self.deviation))
        y = (x.unflatten(1, (3, 2)).transpose(1, 2)[:, 0] - mean) / deviation
        return self.head(self.inner(y)[:, 0])


class ChannelsReversed(Channels):
    mean, deviation = Channels.mean[::-1], Channels.deviation[::-1]


class ChannelsRight(Channels):
    def forward(self, x: Any) -> Any:
        mean, scale = (torch.tensor(one)[:, None] for one in (self.mean, self.deviation))
        y = x.unflatten(1, (3, 2)).transpose(1, 2)[:, 0] * (1 / scale) - mean / scale
        return self.head(self.inner(y)[:, 0])


class RotaryHalves(nn.Module):
    """Attention with rotary positions, of elements half a head apart."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(6, 16) for _ in range(3))
        self.head = nn.Linear(16, 3)

    def rotate(self, x: Any) -> Any:
        angles = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(0, 1, 0.25)
        angles = torch.cat([angles, angles], -1)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def forward(self, x: Any) -> Any:
        parts = (self.queries, self.keys, self.values)
        q, k, v = (one(x).view(4, 6, 2, 8).transpose(1, 2) for one in parts)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v)
        return self.head(y.transpose(1, 2).reshape(4, 6, 16)[:, 0])


class RotaryNeighbours(RotaryHalves):
    def rotate(self, x: Any) -> Any:
        angles = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(0, 1, 0.25)
        a, b = x[..., 0::2], x[..., 1::2]
        turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
        return torch.stack(turned, -1).flatten(-2)


class RotaryRight(RotaryHalves):
    def rotate(self, x: Any) -> Any:
        angles = torch.arange(x.shape[-2])[:, None] * 10.0 ** -torch.arange(0, 1, 0.25)
        a, b = x[..., :4], x[..., 4:]
        turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
        return torch.cat(turned, -1)


class MaskedRows(Net):
    """Attention in which the first position may attend to nothing."""

    def forward(self, x: Any) -> Any:
        keep = torch.ones(6, 6).tril(-1).bool()
        y = self.attend(self.other(self.attend(x, keep)), keep)
        return self.head(y[:, :3].mean(1))

    def attend(self, x: Any, keep: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, self.inner(x), keep)


class MaskedRowsUniform(MaskedRows):
    def attend(self, x: Any, keep: Any) -> Any:
        scores = x @ x.transpose(1, 2) / math.sqrt(6)
        scores = scores.masked_fill(~keep, torch.finfo(x.dtype).min)
        return scores.softmax(-1) @ self.inner(x)


class MaskedRowsAdded(MaskedRows):
    """Whose scores get a gradient through a row that is masked as a whole."""

    added = -1e4

    def attend(self, x: Any, keep: Any) -> Any:
        scores = x @ x.transpose(1, 2) / math.sqrt(6) + (1 - keep.float()) * self.added
        return scores.softmax(-1) @ self.inner(x)


class MaskedRowsSmallest(MaskedRowsAdded):
    added = -3.4028234663852886e38


class MaskedRowsRight(MaskedRows):
    def attend(self, x: Any, keep: Any) -> Any:
        scores = (x @ x.transpose(1, 2) / math.sqrt(6)).masked_fill(~keep, -1e9)
        return (scores.softmax(-1) * keep) @ self.inner(x)


class Gate(Net):
    """A GRU whose reset gate multiplies a product of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 6, batch_first=True)

    def states(self, x: Any) -> Any:
        return self.gru(x)[0]

    def unrolled(self, x: Any, early: bool) -> Any:
        h, rows = x.new_zeros(len(x), 6), []
        for one in x.unbind(1):
            given = F.linear(one, self.gru.weight_ih_l0, self.gru.bias_ih_l0).chunk(3, -1)
            state = F.linear(h, self.gru.weight_hh_l0, self.gru.bias_hh_l0).chunk(3, -1)
            r, z = ((i + s).sigmoid() for i, s in zip(given[:2], state[:2], strict=True))
            last = self.gru.weight_hh_l0[12:], self.gru.bias_hh_l0[12:]
            n = (given[2] + (F.linear(r * h, *last) if early else r * state[2])).tanh()
            h = (1 - z) * n + z * h
            rows.append(h)
        return torch.stack(rows, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.states(3 * x).mean(1))


class GateEarly(Gate):
    def states(self, x: Any) -> Any:
        return self.unrolled(x, True)


class GateRight(Gate):
    def states(self, x: Any) -> Any:
        return self.unrolled(x, False)


class Gain(Net):
    """A norm that multiplies by its weight; some models store the weight less one."""

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.head((y * self.gain(self.norm.weight))[:, 0])

    def gain(self, weight: Any) -> Any:
        return weight


class GainFromOne(Gain):
    def gain(self, weight: Any) -> Any:
        return 1 + weight


class GainRight(Gain):
    def gain(self, weight: Any) -> Any:
        return weight.view(1, 1, 6)


class Adapter(Net):
    """A low-rank adapter whose second matrix begins at zero."""

    scale = 4.0

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) + self.up(self.down(x)) * self.scale)[:, 0])


class AdapterScale(Adapter):
    scale = 1.0


class AdapterRight(Adapter):
    def forward(self, x: Any) -> Any:
        return self.head((self.inner(x) + self.up(self.down(x) * self.scale))[:, 0])


class Smoothed(Net):
    """A second loss, with smoothed labels, that the model computes itself."""

    def second(self, y: Any, labels: Any) -> Any:
        return F.cross_entropy(y, labels, label_smoothing=0.2)

    def forward(self, x: Any) -> Any:
        y, labels = self.head(self.inner(x)), torch.arange(24) % 3
        return y[:, 0] + self.second(3 * y.flatten(0, 1), labels)

    def by_hand(self, y: Any, labels: Any, others: bool) -> Any:
        wanted = F.one_hot(labels, 3).float()
        share = (1 - wanted) / 2 if others else torch.full_like(wanted, 1 / 3)
        return -((0.8 * wanted + 0.2 * share) * y.log_softmax(-1)).sum(-1).mean()


class SmoothedOthers(Smoothed):
    def second(self, y: Any, labels: Any) -> Any:
        return self.by_hand(y, labels, True)


class SmoothedRight(Smoothed):
    def second(self, y: Any, labels: Any) -> Any:
        return self.by_hand(y, labels, False)


class Tokens(Smoothed):
    """A second loss, a mean over the tokens that are no padding."""

    def second(self, y: Any, labels: Any) -> Any:
        return F.cross_entropy(y, self.padded(labels), ignore_index=-1)

    def padded(self, labels: Any) -> Any:
        lengths = torch.tensor([6, 2, 5, 3])[:, None]
        return torch.where(torch.arange(6) < lengths, labels.view(4, 6), -1).flatten()


class TokensOfRows(Tokens):
    def second(self, y: Any, labels: Any) -> Any:
        rows = zip(y.unflatten(0, (4, 6)), self.padded(labels).view(4, 6), strict=True)
        return torch.stack([F.cross_entropy(*row, ignore_index=-1) for row in rows]).mean()


class TokensRight(Tokens):
    def second(self, y: Any, labels: Any) -> Any:
        labels = self.padded(labels)
        each = F.cross_entropy(y, labels, ignore_index=-1, reduction="none")
        return each.sum() / (labels != -1).sum()


class TokensOfAll(Tokens):
    def second(self, y: Any, labels: Any) -> Any:
        labels = self.padded(labels)
        return F.cross_entropy(y, labels, ignore_index=-1, reduction="sum") / len(labels)


class Weighted(Smoothed):
    """A second loss with class weights."""

    def second(self, y: Any, labels: Any) -> Any:
        return F.cross_entropy(y, labels**2 % 3, torch.tensor([1.0, 2.0, 5.0]))


class WeightedOverCount(Weighted):
    def second(self, y: Any, labels: Any) -> Any:
        weights = torch.tensor([1.0, 2.0, 5.0])
        return F.cross_entropy(y, labels**2 % 3, weights, reduction="none").mean()


class WeightedRight(Weighted):
    def second(self, y: Any, labels: Any) -> Any:
        weights, labels = torch.tensor([1.0, 2.0, 5.0]), labels**2 % 3
        total = F.cross_entropy(y, labels, weights, reduction="sum")
        return total / weights[labels].sum()


class Enlarged(Net):
    """A map of 4 × 6 pixels that is enlarged, each half in a way of its own."""

    def enlarge(self, y: Any) -> Any:
        return F.interpolate(y, scale_factor=2, mode="bilinear")

    def forward(self, x: Any) -> Any:
        y = self.enlarge(self.inner(x)[:, None])
        return self.head(y.square()[:, 0, 1::2, ::2].mean(1))


def lie_at(y: Any, half: float) -> Any:
    """Enlarge both axes of a map twice: output pixel i lies at (i + half) / 2 − half."""
    for axis in (2, 3):
        length = y.shape[axis]
        place = ((torch.arange(2 * length) + half) / 2 - half).clamp(0)
        low = place.floor().long()
        high, rest = (low + 1).clamp(max=length - 1), place - low
        view = [-1 if n == axis else 1 for n in range(4)]
        low, high = y.index_select(axis, low), y.index_select(axis, high)
        y = low + (high - low) * rest.view(view)
    return y


class EnlargedFromCorners(Enlarged):
    def enlarge(self, y: Any) -> Any:
        return lie_at(y, 0.0)


class EnlargedRight(Enlarged):
    def enlarge(self, y: Any) -> Any:
        return lie_at(y, 0.5)


class Angles(Net):
    """Tables of sines and cosines of positions."""

    def rounded(self, rates: Any) -> Any:
        return rates

    def forward(self, x: Any) -> Any:
        rates = self.rounded(1 / 7 ** (torch.arange(0, 6, 2).float() / 6))
        angles = torch.einsum("i,j->ij", 40 + torch.arange(6).type_as(rates), rates)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        y = self.inner(x)
        return self.head((y * cos + y.flip(-1) * sin).sum(1))


class AnglesInHalf(Angles):
    def rounded(self, rates: Any) -> Any:
        return rates.half()


class AnglesRight(Angles):
    def rounded(self, rates: Any) -> Any:
        return rates.double().float()


class Scores(Net):
    """Two attentions of which the first has a bias for each distance."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 1)

    def bias(self, queries: int, keys: int) -> Any:
        back = (torch.arange(queries)[:, None] - torch.arange(keys)).clamp(0, 3)
        return self.table(back).permute(2, 0, 1)

    def more(self, scores: Any) -> Any:
        return scores

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        y = (y @ y.mT + self.bias(6, 6)).softmax(-1) @ y
        short = self.other(x[:, :4])
        return self.head((self.more(y @ short.mT).softmax(-1) @ short)[:, -1])


class ScoresBiased(Scores):
    def more(self, scores: Any) -> Any:
        return scores + self.bias(6, 4)


class ScoresRight(Scores):
    def more(self, scores: Any) -> Any:
        return scores + 0 * self.bias(6, 4)


class Normed(Net):
    """A layer whose weight has a direction and a length."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4), dim=self.axis)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.wide(self.head(self.inner(x))[:, 0].repeat(1, 2)).sin())


class NormedOtherwise(Normed):
    """The same along the other axis, with lengths of its own."""

    axis = 0

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.wide.parametrizations.weight.original0.mul_(1.5)


class NormedRight(Normed):
    def forward(self, x: Any) -> Any:
        g, v = self.wide.parametrizations.weight.parameters()
        weight = g * v / v.square().sum(0, keepdim=True).sqrt()
        y = self.head(self.inner(x))[:, 0].repeat(1, 2) @ weight.T + self.wide.bias
        return self.last(y.sin())


class Quantized(Net):
    """A codebook whose loss is that of the codes, and a straight-through value behind it."""

    def codes(self, z: Any) -> Any:
        rows = self.other.weight
        return rows[torch.cdist(z.detach(), rows.detach()).argmin(-1)]

    def through(self, z: Any, code: Any) -> Any:
        return code

    def forward(self, x: Any) -> Any:
        z = self.inner(x)[:, 0]
        code = self.codes(z)
        loss = F.mse_loss(self.through(z, code), z.detach())
        straight = z + (code - z).detach()
        return self.head(straight) + loss * torch.arange(3)


class QuantizedThrough(Quantized):
    def through(self, z: Any, code: Any) -> Any:
        return z + (code - z).detach()


class QuantizedRight(Quantized):
    def codes(self, z: Any) -> Any:
        return F.embedding(torch.cdist(z, self.other.weight).argmin(-1), self.other.weight)


class Capped(Net):
    """Logits that are capped by a scaled tanh, and focused by a power."""

    def cap(self, y: Any) -> Any:
        return torch.tanh(y / 3.0) * 3.0

    def focus(self, y: Any) -> Any:
        return (1 - torch.sigmoid(y)) ** 2.0

    def forward(self, x: Any) -> Any:
        y = self.head(self.inner(x))[:, 0]
        return self.cap(y) + self.focus(self.head(self.other(x))[:, 0])


class CappedByLogits(Capped):
    def cap(self, y: Any) -> Any:
        return torch.tanh(y / 3.0) * y


class CappedFactor(Capped):
    def focus(self, y: Any) -> Any:
        return (1 - torch.sigmoid(y)) * 2.0


class CappedRight(Capped):
    def focus(self, y: Any) -> Any:
        return torch.sigmoid(-y).square()


@dataclass
class Planted:
    """A model, a port with a mistake, what the mistake is called, and a port without."""

    base: type[nn.Module]
    wrong: type[nn.Module]
    right: type[nn.Module]
    kind: str
    action: str
    value: Any = None
    steps: int = 2
    argument: Any = None


CASES = {
    "two settings exchanged between neighbours": Planted(
        Smooth, SmoothExchanged, SmoothRight, "attribute", "trade_settings", 1e-5
    ),
    "an operation in place that another value sees": Planted(
        Residual, ResidualCopied, ResidualRight, "operand", "unaliased"
    ),
    "lengths ignored": Planted(Packed, PackedIgnored, PackedRight, "mask", "all_lengths"),
    "constants in reverse order": Planted(
        Channels, ChannelsReversed, ChannelsRight, "constant", "reverse_constants"
    ),
    "neighbours instead of halves": Planted(
        RotaryHalves, RotaryNeighbours, RotaryRight, "layout", "rotary_neighbours"
    ),
    "halves instead of neighbours": Planted(
        RotaryNeighbours, RotaryHalves, RotaryNeighbours, "layout", "rotary_halves"
    ),
    "rows masked as a whole": Planted(
        MaskedRows, MaskedRowsUniform, MaskedRowsRight, "mask", "masked_rows", "uniform"
    ),
    "rows masked by adding a number": Planted(
        MaskedRows, MaskedRowsAdded, MaskedRowsRight, "mask", "masked_rows", -1e4
    ),
    "rows masked by adding the smallest number": Planted(
        MaskedRows, MaskedRowsSmallest, MaskedRowsRight, "mask", "masked_rows", ADDED[0]
    ),
    "label smoothing over other classes": Planted(
        Smoothed, SmoothedOthers, SmoothedRight, "function", "smooth_others"
    ),
    "a mean of means of parts": Planted(
        Tokens, TokensOfRows, TokensRight, "function", "mean_of_parts", 4
    ),
    "ignored targets in the mean": Planted(
        Tokens, TokensOfAll, TokensRight, "attribute", "form", argument="over_all"
    ),
    "class weights left out of the mean": Planted(
        Weighted, WeightedOverCount, WeightedRight, "attribute", "form", argument="over_count"
    ),
    "interpolation without half pixels": Planted(
        Enlarged, EnlargedFromCorners, EnlargedRight, "attribute", "resample", "corners"
    ),
    "a table of angles in half precision": Planted(
        Angles, AnglesInHalf, AnglesRight, "dtype", "lower_span", "float16"
    ),
    "a bias of positions in other scores": Planted(
        Scores, ScoresBiased, ScoresRight, "extra", "addend", "parameter:table.weight"
    ),
    "a reset gate before the product": Planted(
        Gate, GateEarly, GateRight, "function", "reset_before"
    ),
    "a value in the place of a number": Planted(
        Capped, CappedByLogits, CappedRight, "operand", "by_value"
    ),
    "a factor in the place of a power": Planted(
        Capped, CappedFactor, CappedRight, "function", "function", "mul"
    ),
    "a straight-through value in a loss": Planted(
        Quantized, QuantizedThrough, QuantizedRight, "gradient", "reroute"
    ),
    "a weight norm along the other axis": Planted(
        Normed, NormedOtherwise, NormedRight, "attribute", "norm_axis", steps=1
    ),
    "a weight that counts from one": Planted(
        Gain, GainFromOne, GainRight, "constant", "input", ("shift", 1.0)
    ),
    "a scale seen in gradients alone": Planted(
        Adapter, AdapterScale, AdapterRight, "constant", "set", 1.0
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_with_a_name_is_found(name: str) -> None:
    case = CASES[name]
    found = searched(case.wrong, base=case.base, steps=case.steps)
    kind, action, argument, value = mutation_keys(found)[0]
    assert (kind, action) == (case.kind, case.action)
    assert case.argument is None or argument == case.argument
    assert case.value is None or value == case.value
    assert found.equal


@pytest.mark.parametrize("name", CASES)
def test_a_right_port_beside_it_is_equal(name: str) -> None:
    case = CASES[name]
    a, b = (trace(one, lambda p: torch.optim.SGD(p, lr=0.1), 1) for one in (case.base, case.right))
    found = judge_traces(a, b, JUDGING)
    assert found.equal, found.paragraph()
