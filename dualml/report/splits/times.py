"""Times of a split model's ranks, and how they are displayed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from dualml.report import families, keys, ranks, shown
from dualml.report.blocks import Cell, Notice
from dualml.report.columns import verdict as judged
from dualml.report.figure import Key
from dualml.report.results import Result
from dualml.report.scaling import PARTS
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.spread import Spread, ratio
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

KEYS = ("compute_s", "update_s", "wait_s", "transfer_s")


def step(run: Run, arm: str, backend: str) -> Spread | None:
    """Return the seconds of an update, including the time between two updates; None if unknown."""
    return Result(run, arm, backend).step


def against(run: Run, arm: str, backend: str, other: str | None) -> Spread | None:
    """Return the seconds of an update relative to another arm's, paired by seed; None without
    one."""
    if other is None:
        return None
    return ratio(*(Result(run, name, backend).steps for name in (arm, other)))


def by_rank(run: Run, arm: str, backend: str) -> list[dict[str, float]]:
    """Return rank → seconds of an update by `PARTS`, mean over the seeds; empty if unknown."""
    seeds = [rows for t in run.select(arm, backend) if (rows := _by_rank(t))]
    return [average(of_rank) for of_rank in zip(*seeds, strict=False)]


def _by_rank(trial: Trial) -> list[dict[str, float]]:
    """Return the parts of one trial by rank; ``rest`` is the remainder of the mean update."""
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
    """Return the mean of each part over ranks, or over seeds; empty without rows."""
    return {k: sum(row[k] for row in rows) / len(rows) for k in PARTS} if rows else {}


def parts(run: Run, arm: str, backend: str) -> dict[str, float]:
    """Return the seconds of an update by `PARTS`, means over the ranks; only ``whole`` if the parts
    were not recorded."""
    mean = step(run, arm, backend)
    return average(by_rank(run, arm, backend)) or ({"whole": mean.mean} if mean else {})


def waiting(run: Run, arm: str, backend: str) -> float | None:
    """Return the seconds of waiting and transferring, mean over the ranks; None if unknown."""
    parts = average(by_rank(run, arm, backend))
    return parts["wait"] + parts["transfer"] if parts else None


def take_turns(run: Run, arm: str, backend: str) -> bool:
    """Return whether the ranks took turns on cores."""
    return families.room(run, arm, backend).enough is False


def took_turns(run: Run, arms: Iterable[SplitArm]) -> list[str]:
    """Return the arms whose ranks took turns on cores on any backend."""
    return [
        name
        for name in dict.fromkeys(arm.name for arm in arms)
        if any(take_turns(run, name, b) for _, b in ranks.ran(run, [name]))
    ]


def recorded(run: Run, arm: str, backend: str, key: str) -> float | None:
    """Return a number of ``split`` in ``run.json``, mean over the seeds; None if unknown."""
    return numbers.mean([t.split.get(key) for t in run.select(arm, backend)])


def passes(run: Run, arm: str, backend: str) -> float | None:
    """Return the bubble of a schedule whose passes take the measured times and whose messages take
    none."""
    return recorded(run, arm, backend, "bubble_passes")


def idle(run: Run, arm: str, backend: str) -> Spread | None:
    """Return the measured bubble: median over the updates with its quartiles, means over the
    seeds."""
    names = ("bubble_low", "bubble", "bubble_high")
    low, middle, high = (recorded(run, arm, backend, name) for name in names)
    return None if middle is None else Spread(middle, low, high, 1)


def compared(splits: Splits) -> list[str]:
    """Return the backends whose times are drawn."""
    run = splits.run
    return [b for b in ranks.frameworks(run) if any(run.select(arm.name, b) for arm in splits)]


# --- shown --------------------------------------------------------------------------------------

#: Verdicts against the whole model, the worst last; verdicts not listed are worse.
VERDICTS = ("", "equal", "statistically equal", "not comparable")
#: Bars of the parts of an update, and texts of values per arm and backend.
stacked, listed = partial(shown.stacked, height=0.76), shown.listed


def part_keys(words: Words) -> list[Key]:
    """Return the legend of the parts of an update, and of the pale bar drawn if they were not
    recorded."""
    whole = Key("series", "whole", words("splits.part.whole"), "pale")
    return [whole, *(key for key in keys.fine_parts(words) if key.name != "whole")]


def starred(text: str, run: Run, arm: str, backend: str) -> str:
    """Return the text with a star if ranks took turns on cores."""
    turns = text != numbers.NONE and take_turns(run, arm, backend)
    return f"{text} *" if turns else text


def update_alt(run: Run, arms: Collection[str], backends: Sequence[str], words: Words) -> str:
    """Return the alternative text of a figure of update times."""
    steps = {(a, b): s.mean for a in arms for b in backends if (s := step(run, a, b))}
    values = listed(arms, backends, lambda *place: numbers.ms(steps.get(place)))
    return words("alt.update-parts", values=values)


def verdict(run: Run, arm: str, words: Words) -> Cell:
    """Return the cell of the worst verdict against the whole model, over backends and seeds."""
    every = {s.verdict: s for s in reversed(run.serial) if s.arm == arm}
    if not every:
        return Cell(numbers.NONE)
    worst = every[max(every, key=lambda v: VERDICTS.index(v) if v in VERDICTS else len(VERDICTS))]
    if worst.verdict:
        return judged(worst, words, why=False)
    reason = words.either(f"rule.{worst.reason}", worst.reason)
    return Cell(words("value.another_rule"), note=reason)


def crowded(run: Run, arms: Iterable[SplitArm], words: Words) -> Iterator[Notice]:
    """Yield the notice which ranks had to share cores; it belongs before all times."""
    names = took_turns(run, arms)
    if names:
        yield Notice(words("page.crowded_split", arms=words.join(names)))
