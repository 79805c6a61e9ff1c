"""Where the time of a split model's ranks goes: numbers behind tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dualml.report import families, ranks
from dualml.report.model import Run, Trial
from dualml.report.scaling import PARTS, steps
from dualml.report.splits import arms
from dualml.report.spread import Spread, ratio, spread

KEYS = ("compute_s", "update_s", "wait_s", "transfer_s")


def step(run: Run, arm: str, backend: str) -> Spread | None:
    """Seconds of an update, with what happens between two updates."""
    return spread(steps(run.select(arm, backend)).values())


def against(run: Run, arm: str, backend: str, other: str | None) -> Spread | None:
    """How many times as long as another arm's an update takes, seed by seed."""
    if other is None:
        return None
    return ratio(*(steps(run.select(name, backend)) for name in (arm, other)))


def by_rank(run: Run, arm: str, backend: str) -> list[dict[str, float]]:
    """Rank → seconds of an update by `PARTS`, mean over the seeds; empty where unknown."""
    told = [found for t in run.select(arm, backend) if (found := _ranks(t))]
    if not told:
        return []
    return [
        {k: sum(found[r][k] for found in told) / len(told) for k in PARTS}
        for r in range(min(map(len, told)))
    ]


def _ranks(trial: Trial) -> list[dict[str, float]]:
    """``rest`` is what remains of the mean update: between events, and between updates."""
    seconds = ranks.step_seconds(trial)
    if seconds is None or not all(_known(row) for row in trial.ranks):
        return []
    found = []
    for row in trial.ranks:
        parts = {k.removesuffix("_s"): float(row[k]) for k in KEYS[1:]}
        parts["gradient"] = float(row["compute_s"]) - parts["update"]
        parts["rest"] = max(0.0, seconds - sum(parts.values()))
        found.append(parts)
    return found


def _known(row: Mapping[str, float]) -> bool:
    return all(row.get(k) is not None for k in KEYS)


def average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over the ranks."""
    return {k: sum(row[k] for row in rows) / len(rows) for k in PARTS} if rows else {}


def waiting(run: Run, arm: str, backend: str) -> float | None:
    """Seconds of waiting and transferring, mean over the ranks."""
    parts = average(by_rank(run, arm, backend))
    return parts["wait"] + parts["transfer"] if parts else None


def turns(run: Run, arm: str, backend: str) -> bool:
    """Whether its ranks took turns on cores."""
    return families.room(run, arm, backend).enough is False


def turns_anywhere(run: Run) -> list[str]:
    """Arms whose ranks did on some backend."""
    used = arms.split_arms(run)
    return [a for a in used if any(turns(run, a, b) for b in run.backends if run.select(a, b))]


def measured(run: Run, arm: str, backend: str, key: str) -> float | None:
    """A number of ``split`` in ``run.json``, mean over the seeds."""
    found = [float(t.split[key]) for t in run.select(arm, backend) if t.split.get(key) is not None]
    return sum(found) / len(found) if found else None


def idle(run: Run, arm: str, backend: str) -> Spread | None:
    """The measured bubble: median over the updates with its quartiles, means over the seeds."""
    low, middle, high = (
        measured(run, arm, backend, key) for key in ("bubble_low", "bubble", "bubble_high")
    )
    return None if middle is None else Spread(middle, low, high, 1)


def uneven(run: Run, arm: str, backend: str) -> float | None:
    """The idle share of the same passes, did messages take no time."""
    return measured(run, arm, backend, "bubble_passes")


def shown(run: Run) -> list[str]:
    """The backends whose times are drawn."""
    used = arms.split_arms(run)
    return [b for b in ranks.frameworks(run) if any(run.select(a, b) for a in used)]
