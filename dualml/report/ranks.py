"""What an arm does with its ranks: strategy, handicap, the arms it is to be held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

from dualml.aggregation import ASYNCHRONOUS
from dualml.experiment.aggregation import Aggregation
from dualml.experiment.schema import Arm, Slow
from dualml.report import numbers
from dualml.report.model import Run, Trial
from dualml.report.words import Words

#: What an experiment file leaves out.
ARM: Mapping[str, Any] = {
    name: field.get_default(call_default_factory=True)
    for name, field in Arm.model_fields.items()
    if not field.is_required()
}
AGGREGATION: Mapping[str, Any] = Aggregation().model_dump()
SLOW: Mapping[str, Any] = Slow().model_dump()
#: The kinds of handicap in the order of figures, and the key of `SLOW` that sets each.
HANDICAPS = {
    "compute": "compute",
    "latency": "latency_s",
    "bandwidth": "bandwidth_bytes_per_s",
    "jitter": "jitter_s",
}


def distributed(run: Run) -> bool:
    """Whether any arm has several ranks or measures collectives."""
    return any(size(run, arm) > 1 or not trains(run, arm) for arm in run.arms)


def trains(run: Run, arm: str) -> bool:
    return bool(run.arms[arm].get("kind", "train") == "train")


def size(run: Run, arm: str) -> int:
    return int(run.arms[arm].get("world_size") or 1)


def training(run: Run) -> list[str]:
    return [arm for arm in run.arms if trains(run, arm)]


def several(run: Run) -> list[str]:
    """Training arms with more than one rank, each with the whole model."""
    return [arm for arm in training(run) if size(run, arm) > 1 and not split(run, arm)]


def split(run: Run, arm: str) -> bool:
    """Whether the ranks share one model."""
    return run.arms[arm].get("split") is not None


def measured(run: Run) -> list[Trial]:
    """Successful trials of collectives, by arm and backend."""
    return [
        t
        for arm in run.arms
        for backend in run.backends
        for t in run.select(arm, backend)
        if t.collectives and t.collectives["rows"]
    ]


def aggregation(run: Run, arm: str) -> dict[str, Any]:
    """How the arm's ranks combine what they find, with what the file leaves out."""
    return {**AGGREGATION, **(run.arms[arm].get("aggregation") or {})}


def strategy(run: Run, arm: str) -> str:
    return str(aggregation(run, arm)["strategy"])


def plain(run: Run, arm: str) -> bool:
    """Nothing about its aggregation but the strategy was chosen."""
    told = {**aggregation(run, arm), "strategy": AGGREGATION["strategy"]}
    return told == dict(AGGREGATION) and strategy(run, arm) in _known()


def _known() -> list[str]:
    from dualml.aggregation import STRATEGIES

    return [*STRATEGIES, ASYNCHRONOUS]


def strategies(run: Run) -> list[str]:
    """Every strategy that trained or was measured, in the order of tables."""
    used = {strategy(run, arm) for arm in several(run)}
    for arm in run.arms:
        used |= set(run.arms[arm].get("strategies") or ())
    return [name for name in _known() if name in used] + sorted(used - set(_known()))


def exact(name: str) -> bool:
    """Every rank ends with the sum over all of them."""
    from dualml.aggregation import STRATEGIES

    return name in STRATEGIES and STRATEGIES[name].exact


def slow(run: Run, arm: str) -> dict[str, Any] | None:
    found = run.arms[arm].get("slow")
    return {**SLOW, **found} if found else None


def handicap(run: Run, arm: str) -> str:
    """The kind of the arm's handicap, or nothing."""
    set_up = slow(run, arm)
    if set_up is None:
        return ""
    return next((k for k, key in HANDICAPS.items() if set_up[key] not in (SLOW[key], None)), "")


def told_slow(run: Run, arm: str, words: Words) -> str:
    """``rank 1: compute × 4, from update 50 on``."""
    s = slow(run, arm)
    if s is None:
        return numbers.NONE
    parts = []
    for kind, key in HANDICAPS.items():
        if s[key] not in (SLOW[key], None):
            amount = {
                "compute": f"{s[key]:g}",
                "bandwidth": numbers.quantity(s[key] / 1e6),
            }.get(kind, numbers.quantity(s[key] * 1e3))
            parts.append(words(f"handicap.{kind}", amount=amount))
    if s["since"] > 1:
        parts.append(words("handicap.since", step=s["since"]))
    return words("handicap.rank", rank=s["rank"], what=words("list.comma").join(parts))


def key(run: Run, arm: str, *without: str) -> str:
    """An arm's settings but those named (``slow``, ``optimizer.lr``), its group and how many seeds
    it has, as text: equal for arms that otherwise do the same."""
    whole = {**ARM, **run.arms[arm], "aggregation": aggregation(run, arm)}
    for name in ("group", "seeds", *without):
        outer, _, inner = name.partition(".")
        if inner:
            whole[outer] = {k: v for k, v in (whole[outer] or {}).items() if k != inner}
        else:
            whole.pop(outer, None)
    return json.dumps(whole, sort_keys=True, default=str)


def base_of(run: Run, arm: str) -> str | None:
    """The same arm without its handicap; where there is none, one that trained for longer or
    shorter."""
    for more in ((), ("epochs", "updates")):
        mine = key(run, arm, "slow", *more)
        for other in several(run):
            plain = other != arm and not run.arms[other].get("slow")
            if plain and key(run, other, "slow", *more) == mine:
                return other
    return None


def like(run: Run, arm: str, *without: str, **wanted: Any) -> str | None:
    """Another arm that differs only in what ``without`` names (``aggregation.reduce``,
    ``slow``) and whose aggregation is as ``wanted``."""
    mine = key(run, arm, *without)
    for other in several(run):
        have = aggregation(run, other)
        fits = all(have[k] == v for k, v in wanted.items())
        if other != arm and fits and key(run, other, *without) == mine and run.select(other):
            return other
    return None


def step_seconds(trial: Trial) -> float | None:
    """Training seconds per update (per global batch)."""
    if trial.train_s and trial.updates:
        return trial.train_s / trial.updates
    return None


def mean_step(run: Run, arm: str, backend: str) -> float | None:
    """Median over the seeds."""
    found = [s for t in run.select(arm, backend) if (s := step_seconds(t)) is not None]
    return median(found) if found else None


def parts(run: Run, arm: str, backend: str) -> list[dict[str, float]]:
    """Rank by rank, mean over the seeds: seconds of computing, waiting, transferring."""
    trials = [t for t in run.select(arm, backend) if t.ranks]
    if not trials:
        return []
    keys = ("compute_s", "wait_s", "transfer_s", "step_s")
    return [
        {k: sum(float(t.ranks[r][k]) for t in trials) / len(trials) for k in keys}
        for r in range(min(len(t.ranks) for t in trials))
    ]


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean over the ranks."""
    return {k: sum(r[k] for r in rows) / len(rows) for k in rows[0]}


def update_seconds(run: Run, arm: str, backend: str) -> float | None:
    """Mean over the ranks; of a handicap that sets in later the updates from then on."""
    first = int((slow(run, arm) or SLOW)["since"]) - 1
    spent = [r["done"] - r["begin"] for t in run.select(arm, backend) for r in t.times]
    if first and spent and all(len(s) > first for s in spent):
        return sum(float(s[first:].mean()) for s in spent) / len(spent)
    rows = parts(run, arm, backend)
    return average(rows)["step_s"] if rows else None


def share(run: Run, arm: str, backend: str) -> float | None:
    return numbers.mean([t.communication_share for t in run.select(arm, backend)])


def frameworks(run: Run) -> list[str]:
    """The backends whose speed is of interest: the NumPy reference only if little else is there."""
    others = [b for b in run.backends if run.framework(b) != "numpy"]
    return others if len(others) > 1 else run.backends
