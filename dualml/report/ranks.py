"""Properties of an arm's ranks: strategy, straggler, times, and the parts of an update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from dualml.common.words import Messages, numbers
from dualml.experiment.arm import StragglerSettings
from dualml.experiment.store.run import RunData, Trial
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.parallel.aggregation.settings import Aggregation

#: Kind of handicap, in the order of figures → the key of `Straggler` that sets it, and the factor
#: to display units.
HANDICAPS = {
    "compute": ("compute", 1.0),
    "latency": ("latency_s", 1e3),
    "bandwidth": ("bandwidth_bytes_per_s", 1e-6),
    "jitter": ("jitter_s", 1e3),
}


def is_distributed(run: RunData) -> bool:
    """Return whether any arm has several ranks or measures collectives."""
    return any(arm.world_size > 1 or arm.kind != "train" for arm in run.settings.values())


def world_size(run: RunData, arm: str) -> int:
    """Return the number of ranks of an arm."""
    return run.settings[arm].world_size


def training_arms(run: RunData) -> list[str]:
    """Return the arms that train."""
    return [arm for arm in run.arms if run.settings[arm].kind == "train"]


def multi_rank_arms(run: RunData) -> list[str]:
    """Return the training arms with several ranks that are not split into pipeline stages or tensor
    slices, also without a successful trial; arms with ZeRO and methods are among them."""
    return [
        arm for arm in training_arms(run) if world_size(run, arm) > 1 and not is_split(run, arm)
    ]


def successful_places(run: RunData, arms: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield arm and backend wherever a trial succeeded."""
    return ((arm, b) for arm in arms for b in run.backends if run.select(arm, b))


def is_split(run: RunData, arm: str) -> bool:
    """Return whether the ranks of an arm share one model, as pipeline stages or tensor slices."""
    return run.settings[arm].split is not None


def aggregation(run: RunData, arm: str) -> Aggregation:
    """Return the settings by which an arm's ranks combine their gradients or parameters."""
    return run.settings[arm].aggregation


def strategy(run: RunData, arm: str) -> str:
    """Return the name of the strategy that an arm uses: the method's name for a method, whose
    aggregation settings are unused; ``ring`` for ranks that shard gradients by reduce-scatter if no
    strategy is set."""
    settings = run.settings[arm]
    if settings.method:
        return settings.method
    named = settings.aggregation.strategy
    halves = settings.zero and settings.zero_reduce == "reduce_scatter"
    return "ring" if halves and named == Aggregation().strategy else named


def uses_default_aggregation(run: RunData, arm: str) -> bool:
    """Return whether an arm changes nothing about its aggregation but the strategy, and that is one
    of `STRATEGIES` or the asynchronous server; False with ZeRO, for methods, for the schemes
    ``native`` and ``replicas``, and for unknown names."""
    others = aggregation(run, arm).model_copy(update={"strategy": Aggregation().strategy})
    shared = run.settings[arm].zero
    return others == Aggregation() and strategy(run, arm) in _known_strategies() and not shared


def _known_strategies() -> list[str]:
    """Return the names in `STRATEGIES`, then the asynchronous parameter server; the schemes
    ``native`` and ``replicas`` are not among them."""
    from dualml.parallel.aggregation import STRATEGIES

    return [*STRATEGIES, ASYNCHRONOUS]


def strategies(run: RunData) -> list[str]:
    """Return every strategy that an unsplit training arm with several ranks uses or an arm
    measures, by the settings, even without a successful trial: those of `STRATEGIES` and the
    asynchronous server in their order, then others by name. Names of methods are not strategies."""
    used = {strategy(run, arm) for arm in multi_rank_arms(run) if not run.settings[arm].method}
    used |= {name for arm in run.settings.values() for name in arm.strategies}
    return [name for name in _known_strategies() if name in used] + sorted(
        used - set(_known_strategies())
    )


def is_exact(name: str) -> bool:
    """Return whether a strategy leaves every rank with the exact sum over all ranks; False for
    unknown names."""
    from dualml.parallel.aggregation import STRATEGIES

    return name in STRATEGIES and STRATEGIES[name].exact


def straggler(run: RunData, arm: str) -> StragglerSettings | None:
    """Return the settings of the arm's straggler, None without one."""
    return run.settings[arm].slow


def _amounts(run: RunData, arm: str) -> dict[str, float]:
    """Return kind of handicap → its amount, for those that are set: ``compute`` as a factor,
    ``latency`` and ``jitter`` in ms, ``bandwidth`` in MB/s."""
    given = (straggler(run, arm) or StragglerSettings()).model_dump(exclude_defaults=True)
    return {
        kind: factor * given[key]
        for kind, (key, factor) in HANDICAPS.items()
        if given.get(key) is not None
    }


def handicap(run: RunData, arm: str) -> str:
    """Return the kind of the arm's handicap, the first in the order of `HANDICAPS` if there are
    several; empty without one."""
    return next(iter(_amounts(run, arm)), "")


def handicap_text(run: RunData, arm: str, words: Messages) -> str:
    """Return the handicap as text, e.g. ``rank 1: compute × 4, from update 50 on``; a dash without
    a straggler."""
    s = straggler(run, arm)
    if s is None:
        return numbers.NO_VALUE
    parts = [words(f"handicap.{kind}", amount=x) for kind, x in _amounts(run, arm).items()]
    parts += [words("handicap.since", step=s.since)] if s.since > 1 else []
    return words("handicap.rank", rank=s.rank, what=words("list.comma").join(parts))


def step_seconds(trial: Trial) -> float | None:
    """Return the training seconds per update (per global batch), None if unknown."""
    return trial.train_s / trial.updates if trial.train_s and trial.updates else None


def median_step_seconds(run: RunData, arm: str, backend: str) -> float | None:
    """Return the median over the seeds of the seconds per update, None if unknown."""
    seconds = [s for t in run.select(arm, backend) if (s := step_seconds(t)) is not None]
    return median(seconds) if seconds else None


def rank_parts(run: RunData, arm: str, backend: str) -> list[dict[str, float]]:
    """Return for each rank, in order, the seconds per update of computing (``compute_s``), waiting
    (``wait_s``), transferring (``transfer_s``) and the whole update (``step_s``), means over the
    seeds; empty if they were not recorded."""
    keys = ("compute_s", "wait_s", "transfer_s", "step_s")
    whole = [t for t in run.select(arm, backend) if all({*keys} <= {*row} for row in t.ranks)]
    trials = [t for t in whole if t.ranks]
    each = zip(
        *([{k: float(row[k]) for k in keys} for row in t.ranks] for t in trials), strict=False
    )
    return [average(rows) for rows in each]


def average(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each quantity (key) over rows, one per rank or per seed, which all have
    the keys of the first; there must be a row."""
    return {k: sum(r[k] for r in rows) / len(rows) for k in rows[0]}


def update_seconds(run: RunData, arm: str, backend: str) -> float | None:
    """Return the mean seconds of an update over ranks and seeds; for a handicap that begins later
    only the updates from then on count, if each was timed. None if unknown."""
    first = (straggler(run, arm) or StragglerSettings()).since - 1
    spent = [r["done"] - r["begin"] for t in run.select(arm, backend) for r in t.times]
    if first and spent and all(len(s) > first for s in spent):
        return sum(float(s[first:].mean()) for s in spent) / len(spent)
    rows = rank_parts(run, arm, backend)
    return average(rows)["step_s"] if rows else None


def communication_share(run: RunData, arm: str, backend: str) -> float | None:
    """Return the fraction of all ranks' time spent on communication, mean over the seeds; None if
    unknown."""
    return numbers.mean([t.communication_share for t in run.select(arm, backend)])


def timed_backends(run: RunData) -> list[str]:
    """Return the backends whose speed matters: the NumPy reference counts only if at most one
    framework is there."""
    others = [b for b in run.backends if run.framework(b) != "numpy"]
    return others if len(others) > 1 else run.backends
