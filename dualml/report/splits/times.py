"""Times of a split model's ranks, and how they are displayed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import legend, presentation, ranks, scaling_families
from dualml.report.blocks import Cell, Notice
from dualml.report.confidence import MeanInterval, paired_ratio
from dualml.report.figure import LegendEntry
from dualml.report.results import ArmResult
from dualml.report.scaling import PARTS
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.verdicts import serial_cell

KEYS = ("compute_s", "update_s", "wait_s", "transfer_s")


def step_seconds(run: RunData, arm: str, backend: str) -> MeanInterval | None:
    """Return the seconds of an update, including the time between two updates, mean over the seeds
    with its interval; None if unknown."""
    return ArmResult(run, arm, backend).step


def step_ratio(run: RunData, arm: str, backend: str, other: str | None) -> MeanInterval | None:
    """Return the seconds of an update relative to those of the arm ``other``, paired by seed, with
    the interval; None if ``other`` is None or no seed is known of both."""
    if other is None:
        return None
    return paired_ratio(*(ArmResult(run, name, backend).steps for name in (arm, other)))


def by_rank(run: RunData, arm: str, backend: str) -> list[dict[str, float]]:
    """Return for each rank, in order, the seconds of an update by `PARTS`, mean over the seeds;
    empty if unknown."""
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


def parts(run: RunData, arm: str, backend: str) -> dict[str, float]:
    """Return the seconds of an update by `PARTS`, means over the ranks; only ``whole`` if the parts
    were not recorded, empty if nothing was."""
    mean = step_seconds(run, arm, backend)
    return average(by_rank(run, arm, backend)) or ({"whole": mean.mean} if mean else {})


def waiting_seconds(run: RunData, arm: str, backend: str) -> float | None:
    """Return the seconds of waiting and transferring in an update, mean over ranks and seeds; None
    if unknown."""
    parts = average(by_rank(run, arm, backend))
    return parts["wait"] + parts["transfer"] if parts else None


def is_oversubscribed(run: RunData, arm: str, backend: str) -> bool:
    """Return whether there were fewer CPU cores than the ranks need, so that they took turns; False
    if unknown."""
    return scaling_families.core_budget(run, arm, backend).has_enough_cores is False


def oversubscribed_arms(run: RunData, arms: Iterable[SplitArm]) -> list[str]:
    """Return the names of the arms whose ranks took turns on cores on any backend where they
    succeeded."""
    return [
        name
        for name in dict.fromkeys(arm.name for arm in arms)
        if any(is_oversubscribed(run, name, b) for _, b in ranks.successful_places(run, [name]))
    ]


def mean_recorded(run: RunData, arm: str, backend: str, key: str) -> float | None:
    """Return the number ``key`` of ``split`` in the trials' ``run.json``, mean over the seeds; None
    if unknown."""
    return numbers.mean([t.split.get(key) for t in run.select(arm, backend)])


def passes_bubble(run: RunData, arm: str, backend: str) -> float | None:
    """Return the share of idle time (bubble) that a schedule's passes, as long as they were
    measured, would have if messages took no time: median of the updates, mean of the seeds; None if
    it was not recorded."""
    return mean_recorded(run, arm, backend, "bubble_passes")


def measured_bubble(run: RunData, arm: str, backend: str) -> MeanInterval | None:
    """Return the measured share of idle time (bubble): as mean, low and high the median over the
    updates and its quartiles, means over the seeds; ``seeds`` is always 1. None if unknown."""
    names = ("bubble_low", "bubble", "bubble_high")
    low, middle, high = (mean_recorded(run, arm, backend, name) for name in names)
    return None if middle is None else MeanInterval(middle, low, high, 1)


def timed_backends(splits: Splits) -> list[str]:
    """Return the backends whose times are drawn: those whose speed matters (`ranks.timed_backends`)
    and on which a split arm succeeded."""
    run = splits.run
    return [b for b in ranks.timed_backends(run) if any(run.select(arm.name, b) for arm in splits)]


# --- shown --------------------------------------------------------------------------------------

#: Bars of the parts of an update, and texts of values per arm and backend.
stacked_bars, format_values = (
    partial(presentation.stacked_bars, height=0.76),
    presentation.format_values,
)


def part_keys(words: Messages) -> list[LegendEntry]:
    """Return the legend of the parts of an update, and of the pale bar drawn if they were not
    recorded."""
    whole = LegendEntry("series", "whole", words("splits.part.whole"), "pale")
    return [whole, *(key for key in legend.fine_parts(words) if key.name != "whole")]


def mark_oversubscribed(text: str, run: RunData, arm: str, backend: str) -> str:
    """Return the text with a star if ranks took turns on cores; a dash stays as it is."""
    turns = text != numbers.NO_VALUE and is_oversubscribed(run, arm, backend)
    return f"{text} *" if turns else text


def update_alt(
    run: RunData, arms: Collection[str], backends: Sequence[str], words: Messages
) -> str:
    """Return the alternative text of a figure of update times."""
    steps = {(a, b): s.mean for a in arms for b in backends if (s := step_seconds(run, a, b))}
    values = format_values(arms, backends, lambda *place: numbers.ms(steps.get(place)))
    return words("alt.update-parts", values=values)


def worst_verdict_cell(run: RunData, arm: str, words: Messages) -> Cell:
    """Return the cell of the worst verdict against the whole model, over backends and seeds; for
    another update rule its name, a dash without a comparison."""
    compared = (s for s in run.serial if s.arm == arm)
    return serial_cell(compared, words) or Cell(numbers.NO_VALUE)


def crowding_notices(run: RunData, arms: Iterable[SplitArm], words: Messages) -> Iterator[Notice]:
    """Yield one notice with the arms whose ranks had to share cores, if there are any; it belongs
    before all times."""
    names = oversubscribed_arms(run, arms)
    if names:
        yield Notice(words("page.crowded_split", arms=words.join(names)))
