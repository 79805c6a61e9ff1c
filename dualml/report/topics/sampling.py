"""A partition or a sample: the same training on samples dealt by different rules; what an epoch
misses, and whether the result is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dualml.parity.statistics import MARGIN
from dualml.partition import Bootstrap, RandomSampling, partition_from
from dualml.report import curves, keys, ranks
from dualml.report.blocks import Block, Cell, Item, Table, Tone
from dualml.report.columns import SIGNS, columns
from dualml.report.deals import Deal, deal_of, dealt, partition, rule, settings_text
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel, Rule
from dualml.report.gaps import Gap, accuracies, gap, in_words, plus_minus, short, signed
from dualml.report.measures import loss_unit
from dualml.report.merged import Merged
from dualml.report.notes import Notes
from dualml.report.spread import spread
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Rules that draw with replacement, or without asking the other ranks.
DRAWN = (RandomSampling.name, Bootstrap.name)
TONES: Mapping[str, Tone] = {"equal": "near", "apart": "bad", "open": "muted", "few": "muted"}


@dataclass(frozen=True)
class Contest:
    """Arms of a group that differ in their partition alone; ``base`` is what they are held to."""

    group: str
    base: str
    others: tuple[str, ...]

    @property
    def arms(self) -> list[str]:
        return [self.base, *self.others]


def contests(run: Run) -> list[Contest]:
    """Those in which at least one rule samples."""
    every = []
    for group, arms in run.groups().items():
        among = [arm for arm in dealt(run) if arm in arms]
        for alike in run.contrast.groups(among, vary=("partition",)):
            if len(alike) > 1 and any(rule(run, arm) in DRAWN for arm in alike):
                base = _base(run, alike)
                every.append(Contest(group, base, tuple(a for a in alike if a != base)))
    return every


def _base(run: Run, arms: Sequence[str]) -> str:
    """A random partition; without one the first that is a partition at all."""
    plain = [a for a in arms if rule(run, a) == "random_partition"]
    return next(iter(plain or [a for a in arms if rule(run, a) not in DRAWN] or arms))


def shown_here(run: Run) -> set[str]:
    """Groups of several ranks whose curves are all in the figures of this topic."""
    among: dict[str, set[str]] = {}
    for contest in contests(run):
        among.setdefault(contest.group, set()).update(contest.arms)
    groups = run.groups()
    return {
        group
        for group, arms in among.items()
        if {a for a in ranks.several(run) if a in groups[group] and run.select(a)} <= arms
    }


def again(deal: Deal) -> float | None:
    """Samples of an epoch that were seen before in it, by whichever rank."""
    return numbers.mean([float(sum(s["sizes"]) - (s["samples"] - s["missed"])) for s in deal.all])


def expected(deal: Deal) -> float | None:
    """Samples that chance leaves out of an epoch, for rules that sample."""
    if deal.settings.get("name") not in DRAWN:
        return None
    drawn, n = partition_from(deal.settings), deal.first["samples"]
    if isinstance(drawn, Bootstrap):
        return None if drawn.whole else RandomSampling().missed(n, deal.ranks) * n
    return drawn.missed(n, deal.ranks) * n if isinstance(drawn, RandomSampling) else None


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = contests(run)
    for k, contest in enumerate(every):
        yield from _figures(run, words, contest, f"-{k + 1}" if len(every) > 1 else "")
    rows = [
        _row(run, words, contest, arm, backend)
        for contest in every
        for arm in contest.arms
        for backend in run.backends
        if run.select(arm, backend)
    ]
    if rows:
        spec = (
            *("`arm`", "backend", "missed:samples", "missed_expected:samples", "again:samples"),
            *(f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "gap:points", "verdict"),
        )
        bases = words.join(list(dict.fromkeys(contest.base for contest in every)))
        caption = words("table.sampling", margin=f"{100 * MARGIN:g}", arm=bases)
        yield Table("sampling", caption, columns(words, *spec), rows)


def _row(run: Run, words: Words, contest: Contest, arm: str, backend: str) -> list[Cell | str]:
    trials, deal = run.select(arm, backend), deal_of(run, arm)
    counts: list[float | None] = [None, None, None]
    if deal is not None:
        counts = [deal.mean("missed"), expected(deal), again(deal)]
    difference = None if arm == contest.base else gap(run, arm, contest.base, backend)
    return [
        Cell(arm, note=settings_text(partition(run, arm))),
        backend,
        *(numbers.quantity(None if v is None else round(v, 1)) for v in counts),
        plus_minus(spread(t.final_loss for t in trials)),
        plus_minus(spread(accuracies(run, arm, backend).values()), 100.0, 2),
        _gap(difference, words),
        _verdict(difference, words),
    ]


def _gap(difference: Gap | None, words: Words) -> Cell:
    if difference is None:
        return Cell(numbers.NONE)
    low, high = signed(difference.low), signed(difference.high)
    ends = "" if difference.kind == "few" else words("value.span", low=low, high=high)
    return Cell(signed(difference.mean), note=ends)


def _verdict(difference: Gap | None, words: Words) -> Cell:
    if difference is None:
        return Cell(numbers.NONE)
    tone = TONES[difference.kind]
    return Cell(f"{SIGNS[tone]} {words(f'gap.{difference.kind}')}", tone)


def _figures(run: Run, words: Words, contest: Contest, suffix: str) -> Iterator[Figure]:
    if any(t.curves for arm in contest.arms for t in run.select(arm)):
        yield _curves(run, words, contest, f"sampling{suffix}")
    gaps = {
        (arm, backend): difference
        for arm in contest.others
        for backend in run.backends
        if (difference := gap(run, arm, contest.base, backend)) is not None
        and difference.kind != "few"
    }
    if gaps:
        yield _gaps(run, words, contest, gaps, f"sampling-gaps{suffix}")


def _curves(run: Run, words: Words, contest: Contest, name: str) -> Figure:
    """Loss and test accuracy against updates, all arms and frameworks."""
    panels = []
    for metric, shown, factor in (("loss", "loss", 1.0), ("test_accuracy", "test_accuracy", 100.0)):
        marks: list[Mark] = []
        for backend in run.backends:
            for arm in contest.arms:
                line = curves.line(run.select(arm, backend), metric, "updates")
                if line is not None:
                    after = line.x > 0  # what is known before the first update says nothing
                    x, mean = curves.thin(line.x[after], line.mean[after])
                    marks.append(Line(x, factor * mean, Owner(arm, backend)))
        scale = "auto" if metric == "loss" else "linear"
        y = Axis(words(f"axis.{shown}", unit=loss_unit(run)), scale)  # type: ignore[arg-type]
        panels.append(Panel(marks, Axis(words("axis.updates"), low=0), y))
    title = words("figure.sampling", group=words.either(f"group.{contest.group}", contest.group))
    seeds = words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds))
    base = words("figure.base", arm=contest.base)
    ends = [
        f"{arm} {backend} {numbers.loss(end)}"
        for arm in contest.arms
        for backend in run.backends
        if (end := numbers.mean([t.final_loss for t in run.select(arm, backend)])) is not None
    ]
    return Figure(
        name,
        words.sentences([title, words("figure.mean_line"), base, seeds]),
        words("alt.training", title=title, finals=", ".join(ends) or numbers.NONE),
        panels,
        [*keys.distinct(contest.arms, contest.base), *keys.backends(run)],
        columns=2,
    )


def _gaps(
    run: Run, words: Words, contest: Contest, gaps: Mapping[tuple[str, str], Gap], name: str
) -> Figure:
    """Differences in test accuracy with their intervals, over the margin of equality."""
    arms = [a for a in contest.others if any(arm == a for arm, _ in gaps)]
    shown = [b for b in run.backends if any(backend == b for _, backend in gaps)]
    marks: list[Mark] = [
        Rule(-100 * MARGIN, to=100 * MARGIN, axis="x", owner=Owner(series="margin")),
        Rule(0, axis="x"),
    ]
    for k, backend in enumerate(shown):
        here = [(y, gaps[arm, backend]) for y, arm in enumerate(arms) if (arm, backend) in gaps]
        marks.append(
            Line(
                [100 * g.mean for _, g in here],
                [y for y, _ in here],
                Owner(backend=backend),
                low=[100 * g.low for _, g in here],
                high=[100 * g.high for _, g in here],
                bars="x",
                joined=False,
                shift=6.0 * (k - (len(shown) - 1) / 2),
            )
        )
    values = [f"{arm} {backend} {signed(g.mean)}" for (arm, backend), g in gaps.items()]
    margin = words("figure.margin", margin=f"{100 * MARGIN:g}")
    return Figure(
        name,
        words("figure.sampling_gaps", arm=contest.base),
        words("alt.sampling_gaps", arm=contest.base, values=", ".join(values)),
        [
            Panel(
                marks,
                Axis(words("axis.gap", arm=contest.base)),
                Axis(names=arms),
                height=24 + 34 * len(arms),
            )
        ],
        [*keys.colored_backends(shown), Key("series", "margin", margin, color="silver")],
    )


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "sampling", "table-sampling")
    merged, tests = Merged(notes, words), 0
    for contest in contests(run):
        _epochs(notes, run, words, contest)
        for backend in run.backends:
            gaps = {
                arm: difference
                for arm in contest.others
                if (difference := gap(run, arm, contest.base, backend)) is not None
            }
            _results(merged, words, contest, backend, gaps)
            tests += sum(difference.kind != "few" for difference in gaps.values())
        merged.close()
    if tests > 1:
        notes.warn("tests", n=tests)
    return notes


def _epochs(notes: Notes, run: Run, words: Words, contest: Contest) -> None:
    """What the epochs of each rule see, repeat and miss."""
    whole: list[str] = []
    for arm in contest.arms:
        deal = deal_of(run, arm)
        if deal is None:
            continue
        repeated = numbers.quantity(again(deal))
        if rule(run, arm) in DRAWN:
            _drawn(notes, arm, deal)
        elif deal.mean("missed"):
            missed = numbers.quantity(deal.mean("missed"))
            notes.say("partial", arm=arm, missed=missed, again=repeated)
        elif again(deal):
            notes.say("padded", arm=arm, again=repeated)
        else:
            whole.append(arm)
    if whole:
        notes.say("once", len(whole), arms=words.join(whole))


def _drawn(notes: Notes, arm: str, deal: Deal) -> None:
    missed, n, chance = deal.mean("missed") or 0.0, deal.first["samples"], expected(deal)
    key = "drawn_once" if deal.settings["name"] == Bootstrap.name else "drawn"
    notes.say(
        key if chance is not None else f"{key}_plain",
        arm=arm,
        n=numbers.quantity(n),
        missed=numbers.quantity(round(missed, 1)),
        share=numbers.percent(missed / n),
        expected=numbers.percent((chance or 0.0) / n),
        again=numbers.quantity(round(again(deal) or 0.0, 1)),
    )


def _results(
    merged: Merged, words: Words, contest: Contest, backend: str, gaps: dict[str, Gap]
) -> None:
    """Arms with the same outcome in one sentence."""
    for kind in ("equal", "apart", "open", "few"):
        alike = {arm: difference for arm, difference in gaps.items() if difference.kind == kind}
        if not alike:
            continue
        few, seeds = kind == "few", min(difference.seeds for difference in alike.values())
        text = short if few else in_words
        merged.say(
            backend,
            kind,
            seeds if few else None,
            warning=few,
            base=contest.base,
            n=seeds,
            margin=f"{100 * MARGIN:g}",
            values=words.join([f"{arm} {text(g, words)}" for arm, g in alike.items()]),
        )


TOPIC = Topic("sampling", 510, evidence, findings, leads=lambda run: 50 if contests(run) else 0)
