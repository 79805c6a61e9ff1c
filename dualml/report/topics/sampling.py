"""Partition or sample: the same training with different partition rules, what an epoch misses, and
whether the result is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parallel.partition import Bootstrap, RandomSampling, partition_from
from dualml.parity.statistics import MARGIN
from dualml.report import legend, ranks
from dualml.report.blocks import Block, Cell, Tone
from dualml.report.columns import SIGNS, Columns, tabulate
from dualml.report.curves import mean_lines
from dualml.report.figure import (
    Axis,
    Figure,
    LegendEntry,
    LineMark,
    Mark,
    Panel,
    ReferenceLine,
    SeriesId,
)
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, mean_seeds_note
from dualml.report.results import (
    ArmResult,
    Gap,
    accuracy_gap,
    arm_results,
    format_gaps,
    format_results,
)
from dualml.report.run_partitions import (
    PartitionSummary,
    find_partition,
    format_settings,
    partition_rule,
    partition_settings,
    partitioned_arms,
)
from dualml.report.topics import ReportSection

#: Rules that sample with replacement, or independently of the other ranks.
DRAWN = (RandomSampling.name, Bootstrap.name)
TONES: Mapping[str, Tone] = {"equal": "near", "apart": "bad", "open": "muted", "few": "muted"}
ENDS = ("mean", "low", "high")


@dataclass(frozen=True)
class Contest:
    """Arms of a group that differ only in their partition; the others are compared with
    ``base``."""

    group: str
    base: str
    others: tuple[str, ...]

    @property
    def arms(self) -> list[str]:
        """All arms of the contest, the base first."""
        return [self.base, *self.others]


def contests(run: RunData) -> list[Contest]:
    """Return the contests of a run: two or more partitioned arms of a group that differ only in
    their partition, at least one of which has a rule that samples."""
    every = []
    for group, arms in run.groups().items():
        among = [arm for arm in partitioned_arms(run) if arm in arms]
        for alike in run.contrast.groups(among, vary=("partition",)):
            if len(alike) > 1 and any(partition_rule(run, arm) in DRAWN for arm in alike):
                base = _base(run, alike)
                every.append(Contest(group, base, tuple(a for a in alike if a != base)))
    return every


def _base(run: RunData, arms: Sequence[str]) -> str:
    """Return the arm with a random partition, else the first whose rule does not sample."""
    plain = [a for a in arms if partition_rule(run, a) == "random_partition"]
    return next(iter(plain or [a for a in arms if partition_rule(run, a) not in DRAWN] or arms))


def groups_shown(run: RunData) -> set[str]:
    """Return the groups of multi-rank arms whose curves are all in the figures of this topic."""
    every, groups = contests(run), run.groups()
    arms = {arm for contest in every for arm in contest.arms}
    ran = {arm for arm in ranks.multi_rank_arms(run) if run.select(arm)}
    return {c.group for c in every if ran.intersection(groups[c.group]) <= arms}


def repeated_samples(deal: PartitionSummary) -> float | None:
    """Return the number of samples that an epoch repeats, on one rank or several, mean over epochs
    and seeds; None if unknown."""
    return numbers.mean(
        [float(sum(s["sizes"]) - (s["samples"] - s["missed"])) for s in deal.all_epochs]
    )


def expected_missed(deal: PartitionSummary) -> float | None:
    """Return the expected number of samples that an epoch misses; None for rules that do not
    sample, and for those without a formula."""
    if deal.settings.get("name") not in DRAWN:
        return None
    drawn, n = partition_from(deal.settings), deal.first_epoch["samples"]
    if isinstance(drawn, Bootstrap):
        return None if drawn.whole else RandomSampling().expected_missed_share(n, deal.ranks) * n
    return (
        drawn.expected_missed_share(n, deal.ranks) * n
        if isinstance(drawn, RandomSampling)
        else None
    )


def accuracy_gaps(run: RunData, contest: Contest) -> dict[tuple[str, str], Gap]:
    """Return (arm, backend) → its test accuracy minus that of the base there, for all arms but the
    base."""
    return {
        (arm, backend): g
        for arm, backend in ranks.successful_places(run, contest.others)
        if (g := accuracy_gap(ArmResult(run, arm, backend), ArmResult(run, contest.base, backend)))
    }


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield figures per contest, and the table of missed and repeated samples with the gap in
    accuracy."""
    every = contests(run)
    for k, contest in enumerate(every):
        yield from _figures(run, words, contest, f"-{k + 1}" if len(every) > 1 else "")
    gaps = {place: gap for c in every for place, gap in accuracy_gaps(run, c).items()}

    def deal(r: ArmResult) -> PartitionSummary | None:
        return find_partition(run, r.arm)

    read: Columns[ArmResult] = {
        "`arm`": lambda r: Cell(r.arm, note=format_settings(partition_settings(run, r.arm))),
        "backend": lambda r: r.backend,
        ("missed:samples", "missed_expected:samples", "again:samples"): lambda r: _counts(deal(r)),
        f"final_loss:{loss_unit(run)}": lambda r: r.loss and r.loss.plus_minus(),
        "test_accuracy:percent": lambda r: r.accuracy and r.accuracy.plus_minus(100.0, 2),
        ("gap:points", "verdict"): lambda r: _gap_cells(gaps.get((r.arm, r.backend)), words),
    }
    results = [result for c in every for result in arm_results(run, c.arms)]
    bases = dict.fromkeys(contest.base for contest in every)
    yield from tabulate(words, "sampling", results, read, margin=f"{100 * MARGIN:g}", arm=bases)


def _counts(deal: PartitionSummary | None) -> list[float | None]:
    """Return how many samples an epoch misses, is expected to miss and repeats, to one decimal;
    None for a number that is unknown."""
    counts = deal and (deal.mean("missed"), expected_missed(deal), repeated_samples(deal))
    return [None if n is None else round(n, 1) for n in counts or [None] * 3]


def _gap_cells(gap: Gap | None, words: Messages) -> Sequence[Cell | None]:
    """Return the cells of the accuracy gap to the base and of its verdict; twice None for the
    base."""
    if gap is None:
        return None, None
    tone = TONES[gap.kind]
    ends = "" if gap.kind == "few" else words("value.span", gap=gap)
    verdict = f"{SIGNS[tone]} {words(f'gap.{gap.kind}')}"
    return Cell(numbers.points(gap.mean), note=ends), Cell(verdict, tone)


def _figures(run: RunData, words: Messages, contest: Contest, suffix: str) -> Iterator[Figure]:
    """Yield the learning curves of a contest, and its accuracy gaps with intervals if there are
    enough seeds."""
    if any(t.curves for arm in contest.arms for t in run.select(arm)):
        yield _curves(run, words, contest, f"sampling{suffix}")
    gaps = {place: g for place, g in accuracy_gaps(run, contest).items() if g.kind != "few"}
    if gaps:
        yield _gaps(run, words, contest, gaps, suffix)


def _curves(run: RunData, words: Messages, contest: Contest, name: str) -> Figure:
    """Return a figure of loss and test accuracy against updates, for all arms and frameworks."""
    panels = []
    for metric, factor in (("loss", 1.0), ("test_accuracy", 100.0)):
        # Values before the first update are not informative.
        marks = mean_lines(run, contest.arms, metric, "updates", factor, after=0)
        label = words(f"axis.{metric}", unit=loss_unit(run))
        y = Axis(label, "auto" if metric == "loss" else "linear")
        panels.append(Panel(marks, Axis(words("axis.updates"), low=0), y))
    title = words("figure.sampling", group=words.get(f"group.{contest.group}", contest.group))
    base, mean_line = words("figure.base", arm=contest.base), words("figure.mean_line")
    finals = format_results(
        arm_results(run, contest.arms), lambda r: numbers.format_by_name("loss", r.loss)
    )
    return Figure(
        name,
        words.join_sentences([title, mean_line, base, mean_seeds_note(run, words)]),
        words("alt.training", title=title, finals=finals),
        panels,
        [*legend.distinct_colors(contest.arms, contest.base), *legend.backends(run)],
        columns=2,
    )


def _gaps(
    run: RunData,
    words: Messages,
    contest: Contest,
    gaps: Mapping[tuple[str, str], Gap],
    suffix: str,
) -> Figure:
    """Return a figure of the differences in test accuracy with their intervals, over the
    equivalence margin."""
    arms = list(dict.fromkeys(arm for arm, _ in gaps))
    shown = [b for b in run.backends if any(backend == b for _, backend in gaps)]
    band = ReferenceLine(-100 * MARGIN, to=100 * MARGIN, axis="x", owner=SeriesId(series="margin"))
    marks: list[Mark] = [band, ReferenceLine(0, axis="x")]
    for k, backend in enumerate(shown):
        here = [(y, gaps[arm, backend]) for y, arm in enumerate(arms) if (arm, backend) in gaps]
        mean, low, high = ([100 * getattr(g, end) for _, g in here] for end in ENDS)
        shift = 6.0 * (k - (len(shown) - 1) / 2)
        marks.append(
            LineMark(
                mean,
                [y for y, _ in here],
                SeriesId(backend=backend),
                low,
                high,
                bars="x",
                joined=False,
                shift=shift,
            )
        )
    margin = words("figure.margin", margin=f"{100 * MARGIN:g}")
    x, height = Axis(words("axis.gap", arm=contest.base)), 24 + 34 * len(arms)
    values = [f"{arm} {backend} {numbers.points(g.mean)}" for (arm, backend), g in gaps.items()]
    return build_figure(
        words,
        "sampling-gaps",
        [Panel(marks, x, Axis(names=arms), height=height)],
        [*legend.colored_backends(shown), LegendEntry("series", "margin", margin, color="silver")],
        {"arm": contest.base, "values": ", ".join(values)},
        name=f"sampling-gaps{suffix}",
    )


# --- findings -------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add how many samples each rule misses, and which arms are as accurate as the base, which
    differ, and where that is open."""
    words, tests = notes.words, 0
    for contest in contests(run):
        _add_epochs(notes, run, contest)
        gaps = accuracy_gaps(run, contest)
        for backend, kind in itertools.product(run.backends, ("equal", "apart", "open", "few")):
            alike = {a: g for (a, b), g in gaps.items() if b == backend and g.kind == kind}
            if alike:  # arms with the same outcome in one sentence
                seeds = min(g.seeds for g in alike.values())
                notes.add_per_backend(
                    backend,
                    kind,
                    seeds if kind == "few" else None,
                    n=seeds,
                    base=contest.base,
                    margin=f"{100 * MARGIN:g}",
                    values=format_gaps(alike, words),
                    warning=kind == "few",
                )
        notes.add_collected()
        tests += sum(g.kind != "few" for g in gaps.values())
    if tests > 1:
        notes.add_warning("tests", n=tests)


def _add_epochs(notes: Notes, run: RunData, contest: Contest) -> None:
    """Add what the epochs of each rule cover, repeat and miss."""
    whole: list[str] = []
    for arm in contest.arms:
        deal = find_partition(run, arm)
        if deal is None:
            continue
        if partition_rule(run, arm) in DRAWN:
            _add_sampled(notes, arm, deal)
        elif deal.mean("missed"):
            notes.add("partial", arm=arm, missed=deal.mean("missed"), again=repeated_samples(deal))
        elif repeated_samples(deal):
            notes.add("padded", arm=arm, again=repeated_samples(deal))
        else:
            whole.append(arm)
    if whole:
        notes.add("once", len(whole), arms=whole)


def _add_sampled(notes: Notes, arm: str, deal: PartitionSummary) -> None:
    """Add the share of samples that an arm's rule missed, beside the expected share if there is a
    formula."""
    missed, n, chance = (
        deal.mean("missed") or 0.0,
        deal.first_epoch["samples"],
        expected_missed(deal),
    )
    key = "drawn_once" if deal.settings["name"] == Bootstrap.name else "drawn"
    notes.add(
        key if chance is not None else f"{key}_plain",
        arm=arm,
        n=n,
        missed=round(missed, 1),
        share=missed / n,
        expected=(chance or 0.0) / n,
        again=round(repeated_samples(deal) or 0.0, 1),
    )


TOPIC = ReportSection(
    "sampling",
    510,
    evidence,
    findings,
    "table-sampling",
    priority=lambda run: 50 if contests(run) else 0,
)
