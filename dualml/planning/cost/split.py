"""Tensor parallelism compared with a pipeline of two stages: which update is shorter, and from
where on.

A model of L linear layers with the sizes d₀, d₁, …, d_L and a batch of B samples takes C = 6·B·Σ
dᵢ₋₁·dᵢ operations per update: 2·B·dᵢ₋₁·dᵢ forward and twice that backward. A rank does F operations
per second; numbers are float32 of 4 bytes; α, β and γ are those of `Link`.

**Horizontal** (tensor parallel), on n ranks (Shoeybi et al. 2019, "Megatron-LM: Training
Multi-Billion Parameter Language Models Using Model Parallelism", section 3): of each pair of layers
the first is split by columns, the second by rows. One all-reduce sums the pair's output (4·B·dᵢ₊₁
bytes), one the gradient of its input (4·B·dᵢ₋₁ bytes); nothing overlaps them:

    T_h = C / (n·F) + Σ over the pairs [A(4·B·dᵢ₊₁) + A(4·B·dᵢ₋₁)]
    A(S) = 2(n−1)·α + 2(n−1)/n·S·β + (n−1)/n·S·γ

**Vertical** (pipeline), in 2 stages with m micro-batches of B/m samples (Huang et al. 2019,
"GPipe", section 2.3): f₀ and f₁ seconds forward and b₀ and b₁ backward for a micro-batch, t = α +
β·4·B/m·d for a message over the cut of width d:

    T_v = f₀ + t + f₁ + (m−1)·max(f₀, t, f₁) + b₁ + t + b₀ + (m−1)·max(b₁, t, b₀)

With two equal halves and t below f that is (m+1)/(2m)·C/F + 2t. It is exact for `gpipe`; with
`1f1b` messages may delay the ranks more or less (see `dualml.planning.cost.pipeline`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from dualml.common.errors import UserError
from dualml.planning.cost.closed_form import cost
from dualml.planning.cost.compare import crossovers
from dualml.planning.cost.link import Link

WIDTH = 4  # bytes of an element
#: Upper limits of the search: layer width, and link bandwidth in bytes per second.
MAX_WIDTH, MAX_BYTES_PER_S = 10**6, 10**15


def tensor_parallel_step(
    sizes: Sequence[int], batch: int, n: int, flops_per_s: float, link: Link, *, whole: bool = True
) -> float:
    """Return the seconds of an update with tensor parallelism: T_h.

    Args:
        sizes: d₀ … d_L; an odd layer at the end is computed by every rank.
        batch: B, number of samples.
        n: number of ranks.
        flops_per_s: F of one rank.
        link: link between the ranks.
        whole: whether the gradient of the first pair's input is summed, too, as it is needed if
            other layers come before the pair; the gradient of the data is not needed.

    Raises:
        UserError: invalid numbers.
    """
    _check(sizes, batch, n, flops_per_s)
    flops = _flops(sizes, batch)
    split = len(flops) // 2 * 2
    computing = sum(flops[:split]) / n + sum(flops[split:])
    outputs = sizes[2 : split + 1 : 2]
    inputs = sizes[0:split:2] if whole else sizes[2:split:2]
    adding = sum(all_reduce_s(n, WIDTH * batch * d, link) for d in (*outputs, *inputs))
    return computing / flops_per_s + adding


def vertical_step(
    sizes: Sequence[int], batch: int, m: int, flops_per_s: float, link: Link, *, cut: int = 0
) -> float:
    """Return the seconds of an update with a pipeline of 2 stages: T_v.

    Args:
        sizes, batch, flops_per_s, link: as in `tensor_parallel_step`.
        m: number of micro-batches, B/m samples each, possibly fractional.
        cut: number of layers of the first stage; 0: the fastest cut.

    Raises:
        UserError: invalid numbers, or a single layer.
    """
    _check(sizes, batch, m, flops_per_s)
    layers = len(sizes) - 1
    if layers < 2 or not 0 <= cut < layers:
        raise UserError(
            f"a vertical split has a layer before and after the cut; received {layers} layers, "
            f"cut after {cut}"
        )
    forward = [x / 3 / m / flops_per_s for x in _flops(sizes, batch)]

    def seconds(k: int) -> float:
        first, last = sum(forward[:k]), sum(forward[k:])
        message = link.seconds(1, WIDTH * batch / m * sizes[k])
        ways = ((first, message, last), (2 * first, message, 2 * last))
        return sum(sum(way) + (m - 1) * max(way) for way in ways)

    return min(map(seconds, [cut] if cut else range(1, layers)))


def crossover_width(
    layers: int, batch: int, m: int, n: int, flops_per_s: float, link: Link
) -> int | None:
    """Return the width d from which on tensor parallelism is faster, in a model of L layers d × d.

    Computation grows with d², messages with d. For n = 2, a link that does not delay the pipeline
    and γ = 0, it is the root of T_v − T_h:

        3·B·L/(m·F)·d² − 4·B·(L − 2/m)·β·d − 2·(L − 1)·α = 0

    Args:
        layers: L, even: pairs.
        batch, m, n, flops_per_s, link: as in the two steps.

    Returns:
        None if a width of a million is not enough.
    """

    return _crossover_point(
        MAX_WIDTH, batch, m, n, flops_per_s, lambda d: ([d] * (layers + 1), link)
    )


def crossover_bandwidth(
    sizes: Sequence[int], batch: int, m: int, n: int, flops_per_s: float, link: Link
) -> int | None:
    """Return the bandwidth 1/β, in bytes per second, from which on tensor parallelism is faster.

    For n = 2, L layers d × d, a link that does not delay the pipeline and γ = 0:

        1/β = 4·B·d·(L − 2/m) / (3·B·L·d²/(m·F) − 2·(L − 1)·α)

    Args:
        sizes, batch, m, n, flops_per_s: as in the two steps.
        link: its β is the unknown.

    Returns:
        None if 10¹⁵ bytes per second are not enough, as when the denominator is not above 0: then α
            alone takes longer than the bubble of the pipeline.
    """

    def with_rate(rate: int) -> tuple[Sequence[int], Link]:
        return sizes, Link(link.alpha_s, 1 / rate, link.gamma_s_per_byte)

    return _crossover_point(MAX_BYTES_PER_S, batch, m, n, flops_per_s, with_rate)


def all_reduce_s(n: int, nbytes: int, link: Link) -> float:
    """Return A(S), the seconds of an all-reduce of ``nbytes`` over n ranks, as `dualml simulate`
    prices it. ``nbytes`` is a multiple of 4, the bytes of an element."""
    one = cost("all_reduce", n, nbytes, WIDTH)
    return link.seconds(one.steps, one.bytes, one.added)


def _crossover_point(
    most: int,
    batch: int,
    m: int,
    n: int,
    flops_per_s: float,
    setup: Callable[[int], tuple[Sequence[int], Link]],
) -> int | None:
    """Return the beginning of the last range of whole numbers up to ``most`` if tensor parallelism
    is faster in it, else None. ``setup`` makes sizes and link from such a number."""

    def seconds(name: str, x: int) -> float:
        sizes, link = setup(x)
        if name == "horizontal":
            return tensor_parallel_step(sizes, batch, n, flops_per_s, link)
        return vertical_step(sizes, batch, m, flops_per_s, link)

    last = crossovers("horizontal", "vertical", 1, most, seconds)[-1]
    return last.first if last.winner == "horizontal" else None


def _flops(sizes: Sequence[int], batch: int) -> list[float]:
    """Return the operations of an update in each layer, forward and backward together:
    6·B·dᵢ₋₁·dᵢ."""
    return [6.0 * batch * a * b for a, b in itertools.pairwise(sizes)]


def _check(sizes: Sequence[int], batch: int, parts: int, flops_per_s: float) -> None:
    """Raise `UserError` for invalid numbers; ``parts`` is the number of ranks or micro-batches."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise UserError(f"a model has at least 2 sizes, each from 1; received {list(sizes)}")
    if batch < 1 or parts < 1 or not flops_per_s > 0:
        raise UserError(
            "a batch, ranks and micro-batches are from 1, a rate above 0; "
            f"received {batch}, {parts}, {flops_per_s}"
        )
