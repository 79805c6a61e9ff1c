"""Where the time of a split model's ranks goes: the numbers behind tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dualml.report import families, ranks
from dualml.report.results import Result
from dualml.report.scaling import PARTS
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.spread import Spread, ratio
from dualml.store.run import Run, Trial
from dualml.words import numbers

KEYS = ("compute_s", "update_s", "wait_s", "transfer_s")


def step(run: Run, arm: str, backend: str) -> Spread | None:
    """Seconds of an update, with what happens between two updates."""
    return Result(run, arm, backend).step


def milliseconds(seconds: Spread | float | None) -> str:
    """Of a mean over seeds, too."""
    return numbers.ms(seconds.mean if isinstance(seconds, Spread) else seconds)


def update_ms(run: Run, arm: str, backend: str) -> str:
    """The mean time of an update."""
    return milliseconds(step(run, arm, backend))


def against(run: Run, arm: str, backend: str, other: str | None) -> Spread | None:
    """How many times as long as another arm's an update takes, seed by seed."""
    if other is None:
        return None
    return ratio(*(Result(run, name, backend).steps for name in (arm, other)))


def by_rank(run: Run, arm: str, backend: str) -> list[dict[str, float]]:
    """Rank → seconds of an update by `PARTS`, mean over the seeds; empty where unknown."""
    seeds = [rows for t in run.select(arm, backend) if (rows := _by_rank(t))]
    return [average(of_rank) for of_rank in zip(*seeds, strict=False)]


def _by_rank(trial: Trial) -> list[dict[str, float]]:
    """``rest`` is what remains of the mean update: between events, and between updates."""
    seconds = ranks.step_seconds(trial)
    if seconds is None or any(row.get(k) is None for row in trial.ranks for k in KEYS):
        return []
    rows = []
    for row in trial.ranks:
        parts = {k.removesuffix("_s"): float(row[k]) for k in KEYS[1:]}
        parts["gradient"] = float(row["compute_s"]) - parts["update"]
        parts["rest"] = max(0.0, seconds - sum(parts.values()))
        rows.append(parts)
    return rows


def average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over ranks, or over seeds."""
    return {k: sum(row[k] for row in rows) / len(rows) for k in PARTS} if rows else {}


def parts(run: Run, arm: str, backend: str) -> dict[str, float]:
    """Seconds of an update by `PARTS`, means over the ranks; ``whole`` alone where what they did is
    not recorded."""
    mean = step(run, arm, backend)
    return average(by_rank(run, arm, backend)) or ({"whole": mean.mean} if mean else {})


def waiting(run: Run, arm: str, backend: str) -> float | None:
    """Seconds of waiting and transferring, mean over the ranks."""
    parts = average(by_rank(run, arm, backend))
    return parts["wait"] + parts["transfer"] if parts else None


def take_turns(run: Run, arm: str, backend: str) -> bool:
    """Whether its ranks took turns on cores."""
    return families.room(run, arm, backend).enough is False


def crowded(run: Run, arms: Iterable[SplitArm]) -> list[str]:
    """Arms whose ranks did on some backend."""
    return [
        name
        for name in dict.fromkeys(arm.name for arm in arms)
        if any(take_turns(run, name, b) for _, b in ranks.ran(run, [name]))
    ]


def recorded(run: Run, arm: str, backend: str, key: str) -> float | None:
    """A number of ``split`` in ``run.json``, mean over the seeds."""
    return numbers.mean([t.split.get(key) for t in run.select(arm, backend)])


def passes(run: Run, arm: str, backend: str) -> float | None:
    """The bubble that passes as long as these would make, took messages no time."""
    return recorded(run, arm, backend, "bubble_passes")


def idle(run: Run, arm: str, backend: str) -> Spread | None:
    """The measured bubble: median over the updates with its quartiles, means over the seeds."""
    keys = ("bubble_low", "bubble", "bubble_high")
    low, middle, high = (recorded(run, arm, backend, key) for key in keys)
    return None if middle is None else Spread(middle, low, high, 1)


def compared(splits: Splits) -> list[str]:
    """The backends whose times are drawn."""
    run = splits.run
    return [b for b in ranks.frameworks(run) if any(run.select(arm.name, b) for arm in splits)]
