"""Mistakes with what a step leaves behind: buffers, averaged weights, the state of the optimizer.

Each is seen in how an array moves in one step, from the arrays before it and the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.ranks.evidence import RankEvidence, TraceSide, is_near
from dualml.parity.ranks.factors import ONE_FACTOR, RankFinding
from dualml.parity.ranks.sharded_mistakes import MOMENTA

Wide = NDArray[np.float64]
#: Key of buffers in the phase ``state``.
BUFFER = "buffer/"
#: Ends of the names of running statistics.
STATISTICS = ("running_mean", "running_var", "moving_mean", "moving_variance")
#: Largest number of times that something is done in one step.
MAX_TIMES = 64
#: Limit on the times that an average follows the updated weights alone: one number then has to fit,
#: and among large numbers of times one often does.
MAX_TIMES_AFTER = 8
#: Relative tolerance of a number that is fitted.
FIT_RTOL = 2e-3
#: Smallest number of elements of an array to which shares are fitted.
MIN_ELEMENTS = 4
#: Names in a sentence.
MAX_NAMES = 3


def list_names(names: Sequence[str]) -> str:
    """Return the first `MAX_NAMES` names joined by commas, with an ellipsis for the others."""
    more = ", …" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def find_before(side: TraceSide, step: int, name: str) -> Wide | None:
    """Return an array as it was before a step, as float64; None if it was not recorded.

    Args:
        name: name of a parameter, or ``SLOT/NAME`` or ``buffer/NAME`` of the phase ``state``.
    """
    if name.startswith(BUFFER) and step == 1:
        found = side.find_array("parameters", 0, name.removeprefix(BUFFER))
    elif "/" in name:
        found = side.find_array("state", step - 1, name)
    else:
        found = side.find_weight_before(step, name)
    return None if found is None else found.astype(np.float64)


def fit_factor(x: Wide, y: Wide) -> float | None:
    """Return the number by which ``x`` is multiplied to give ``y``, up to `ONE_FACTOR`; None if
    there is none."""
    size = float(np.vdot(x, x))
    if not size or not np.isfinite(size) or not np.isfinite(y).all():
        return None
    factor = float(np.vdot(x, y)) / size
    return factor if gap(factor * x, y) <= ONE_FACTOR else None


def buffers_never_change(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if buffers of the suspect keep their initial value in all steps, and
    those of the reference do not; None if there are no such buffers."""
    names = [
        name.removeprefix(BUFFER)
        for name in evidence.names_outside("state")
        if name.startswith(BUFFER)
        and is_constant(evidence.suspect, name)
        and not is_constant(evidence.reference, name)
    ]
    if not names:
        return None
    values = {"n": len(names), "names": list_names(names)}
    return RankFinding(len(names), "state", values, tuple(names))


def is_constant(side: TraceSide, name: str) -> bool:
    """Return whether a buffer, named ``buffer/NAME``, has its initial value after every recorded
    step."""
    before = find_before(side, 1, name)
    after = [side.find_array("state", step, name) for step in range(1, side.trace.steps + 1)]
    return before is not None and all(
        one is not None and np.array_equal(one, before.astype(one.dtype)) for one in after
    )


def statistics_updated_twice(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect updates running statistics n ≥ 2 times in a step:
    with momentum m they move by 1 − (1 − m)ⁿ of the way, in place of m. None if that explains
    nothing."""
    names, factors = [], []
    for name, (x, y) in evidence.pairs("state").items():
        start = find_before(evidence.reference, evidence.step, name)
        if not name.endswith(STATISTICS) or start is None or start.shape != x.shape:
            continue
        factor = fit_factor(x.astype(np.float64) - start, y.astype(np.float64) - start)
        if factor is not None and factor > 1:
            names.append(name.removeprefix(BUFFER))
            factors.append(factor)
    if not names or not all(is_near(one, factors[0], FIT_RTOL) for one in factors):
        return None
    for momentum in MOMENTA:
        for times in range(2, MAX_TIMES + 1):
            if is_near(factors[0], (1 - (1 - momentum) ** times) / momentum, FIT_RTOL):
                modules = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
                values = {"n": times, "momentum": momentum, "names": list_names(modules)}
                return RankFinding(len(names), "state", values, tuple(names))
    return None


def updated_without_gradient(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect updates parameters whose gradient is zero or absent,
    and the reference leaves them unchanged; None if there are no such parameters."""
    names = []
    for name, (x, y) in evidence.pairs("update").items():
        before = find_before(evidence.reference, evidence.step, name)
        if before is None or before.shape != x.shape or not np.array_equal(x, before):
            continue
        gradient = evidence.suspect.find_array("gradient", evidence.step, name)
        if (gradient is None or not gradient.any()) and not np.array_equal(y, before):
            names.append(name)
    if not names:
        return None
    values = {"n": len(names), "names": list_names(names)}
    return RankFinding(len(names), "update", values, tuple(names))


def optimizer_begins_anew(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's optimizer begins without a state: after the first
    step a slot is one number times the gradient, while the reference's also holds something older.
    None if that explains nothing."""
    if evidence.step != 1:
        return None
    found: dict[str, list[tuple[str, float]]] = {}
    for name, (x, y) in evidence.pairs("state").items():
        head, _, parameter = name.rpartition("/")
        sides = (evidence.reference, evidence.suspect)
        h, g = (side.find_array("gradient", 1, parameter) for side in sides)
        if not head or head + "/" == BUFFER or g is None or h is None or g.shape != x.shape:
            continue
        factor = fit_factor(g.astype(np.float64), y.astype(np.float64))
        if factor and fit_factor(h.astype(np.float64), x.astype(np.float64)) is None:
            found.setdefault(head, []).append((parameter, factor))
    for head, rows in found.items():
        names = [name for name, _ in rows]
        if len(rows) > 1 and all(is_near(c, rows[0][1], FIT_RTOL) for _, c in rows):
            explained = len(evidence.names_outside("update"))
            values = {"state": head, "factor": f"{rows[0][1]:.4g}"}
            return RankFinding(max(explained, len(rows)), "state", values, tuple(names))
    return None


def find_followed(side: TraceSide, name: str) -> str | None:
    """Return the trained parameter that an averaged copy of weights follows: of its shape, and
    with the most equal dotted parts at the end of their names, at least one. None if ``name`` is
    itself trained or unknown, or there is none."""
    shapes = {one.name: one for one in side.trace.tensors}
    own = shapes.get(side.own_name(name))
    if own is None or own.trained:
        return None
    rows = [
        (common_parts(name, one), one)
        for one in side.names
        if one != name
        and (other := shapes.get(side.own_name(one))) is not None
        and other.trained
        and other.shape == own.shape
    ]
    return max(rows)[1] if rows and max(rows)[0] else None


def common_parts(a: str, b: str) -> int:
    """Return how many parts at the end of two dotted names are equal."""
    pairs = zip(reversed(a.split(".")), reversed(b.split(".")), strict=False)
    count = 0
    for x, y in pairs:
        if x != y:
            break
        count += 1
    return count


class AverageShares(NamedTuple):
    """Shares by which averaged weights move in a step: the reference's by ``share`` of the way to
    the updated weights, the suspect's by ``old`` of the way to the weights before and ``new`` to
    those after the update; ``names`` are the averaged weights."""

    names: list[str]
    share: float
    old: float
    new: float


def average_shares(side: TraceSide, step: int) -> Iterator[tuple[str, float, float]]:
    """Yield (``buffer/NAME``, p, q) for each averaged copy E of weights W that moves in a step from
    E₀ to E₀ + p (W₀ − E₀) + q (W₁ − E₀), where W₀ and W₁ are the weights before and after the
    update."""
    for name in side.names:
        followed = find_followed(side, name)
        if followed is None:
            continue
        before = find_before(side, step, BUFFER + name)
        after = side.find_array("state", step, BUFFER + name)
        old, new = find_before(side, step, followed), side.find_array("update", step, followed)
        if before is None or after is None or old is None or new is None:
            continue
        columns = np.stack([(old - before).ravel(), (new - before).ravel()], axis=1)
        wanted = (after - before).ravel()
        if not wanted.any() or len(wanted) < MIN_ELEMENTS:
            continue
        shares = np.linalg.lstsq(columns, wanted, rcond=None)[0]
        if gap(columns @ shares, wanted) <= FIT_RTOL:
            yield BUFFER + name, float(shares[0]), float(shares[1])


def typical_shares(evidence: RankEvidence) -> AverageShares | None:
    """Return the shares of old and new weights by which the averaged weights that differ move in a
    step, the median over these; None if there are none that both sides explain so, or the
    reference's do not follow the new weights alone."""
    sides = [
        {name: (p, q) for name, p, q in average_shares(side, evidence.step)}
        for side in (evidence.reference, evidence.suspect)
    ]
    names = [name for name in evidence.names_outside("state") if all(name in one for one in sides)]
    if not names:
        return None
    (p, q), (r, s) = (
        tuple(float(np.median([one[name][i] for name in names])) for i in (0, 1)) for one in sides
    )
    if not 0 < q < 1 or abs(p) > FIT_RTOL or not 0 < s < 1:
        return None
    return AverageShares([name.removeprefix(BUFFER) for name in names], q, r, s)


def average_followed_often(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's averaged weights are updated n ≥ 2 times in a step,
    all of them after the update of the weights, or n − 1 of them before it; None if nothing is."""
    found = typical_shares(evidence)
    times = found and find_times(found.share, found.old, found.new)
    if not found or not times:
        return None
    values = {"share": f"{found.share:.3g}", "names": list_names(found.names), "n": times}
    return RankFinding(len(found.names), "state", values, tuple(found.names))


def average_of_other_decay(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the averaged weights of both sides follow the new weights once
    in a step, with different decays; None if they do not, or the suspect's follow often."""
    found = typical_shares(evidence)
    if not found or abs(found.old) > FIT_RTOL or is_near(found.new, found.share, FIT_RTOL):
        return None
    if find_times(found.share, found.old, found.new) or find_times(found.new, 0.0, found.share):
        return None
    decays = {"decay": f"{1 - found.share:.4g}", "other": f"{1 - found.new:.4g}"}
    values = {**decays, "names": list_names(found.names)}
    return RankFinding(len(found.names), "state", values, tuple(found.names))


def find_times(share: float, old: float, new: float) -> int:
    """Return how often an average followed the weights in one step, by ``share`` each time; 0 if no
    number of times from 2 to a limit explains the shares.

    All n times after the update give 1 − (1 − k)ⁿ of the new weights, with k = ``share``; n − 1
    times before it give k of the new and (1 − k) (1 − (1 − k)ⁿ⁻¹) of the old ones.

    Args:
        old, new: the average's shares of the weights before and after the update.
    """
    if abs(old) <= FIT_RTOL:
        times = round(log(1 - new) / log(1 - share))
        fits = is_near(1 - (1 - share) ** times, new, FIT_RTOL)
        return times if 2 <= times <= MAX_TIMES_AFTER and fits else 0
    if not is_near(new, share, FIT_RTOL):
        return 0
    rest = 1 - old / (1 - share)
    times = 1 + round(log(rest) / log(1 - share)) if 0 < rest < 1 else 0
    fits = times > 1 and is_near((1 - share) * (1 - (1 - share) ** (times - 1)), old, 5 * FIT_RTOL)
    return times if fits and times <= MAX_TIMES else 0


def rate_in_momentum(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's momentum holds updates with their learning rate,
    and the reference's holds gradients alone: the two differ once the rate changes. None if that
    explains nothing.

    An update u is α times the one before plus β times the gradient; for the suspect α is the
    momentum m, for the reference α = m · rate / last rate.
    """
    step = evidence.step
    names = evidence.names_outside("update")
    if step < 3 or not names:
        return None
    fits = [fit_updates(side, step, names) for side in (evidence.reference, evidence.suspect)]
    earlier = fit_updates(evidence.reference, step - 1, names)
    if fits[0] is None or fits[1] is None or earlier is None:
        return None
    (alpha, beta), (own_alpha, own_beta) = fits[0], fits[1]
    ratio = beta / earlier[1] if earlier[1] else 0.0
    same = is_near(own_beta, beta, FIT_RTOL) and is_near(alpha, own_alpha * ratio, FIT_RTOL)
    if not same or is_near(ratio, 1.0, FIT_RTOL) or not 0 < own_alpha < 1:
        return None
    values = {
        "momentum": f"{own_alpha:.3g}",
        "old": f"{abs(earlier[1]):.4g}",
        "new": f"{abs(beta):.4g}",
    }
    return RankFinding(len(names), "update", values, tuple(names))


def fit_updates(side: TraceSide, step: int, names: Sequence[str]) -> tuple[float, float] | None:
    """Return (α, β) with which all updates of a step are α times those of the step before plus β
    times the gradients; None if no numbers fit or an array was not recorded."""
    rows, wanted = [], []
    for name in names:
        weights = [find_before(side, at, name) for at in (step - 1, step)]
        end, gradient = (side.find_array(phase, step, name) for phase in ("update", "gradient"))
        if any(one is None for one in (*weights, end, gradient)):
            return None
        first, second = weights
        assert first is not None
        assert second is not None
        assert end is not None
        assert gradient is not None
        rows.append(np.stack([(second - first).ravel(), gradient.astype(np.float64).ravel()], 1))
        wanted.append((end.astype(np.float64) - second).ravel())
    columns, target = np.concatenate(rows), np.concatenate(wanted)
    found = np.linalg.lstsq(columns, target, rcond=None)[0]
    exact = gap(columns @ found, target) <= FIT_RTOL
    return (float(found[0]), float(found[1])) if exact else None
