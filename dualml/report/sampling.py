"""A partition or a sample: the same training on samples dealt by different rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.parity.statistics import MARGIN
from dualml.partition import Bootstrap, RandomSampling, partition_from
from dualml.report import numbers, ranks
from dualml.report.cells import SIGNS, Cell, Table, heads, number
from dualml.report.deals import Deal, deal_of, dealt, partition, rule, told
from dualml.report.gaps import Gap, accuracies, gap, plus_minus, signed
from dualml.report.model import Run
from dualml.report.spread import spread
from dualml.report.style import loss_unit, slug
from dualml.report.words import Words

#: Rules that draw with replacement, or without asking the other ranks.
DRAWN = (RandomSampling.name, Bootstrap.name)
TONES = {"equal": "near", "apart": "bad", "open": "muted", "few": "muted"}


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
    found = []
    for group, arms in run.groups().items():
        alike: dict[str, list[str]] = {}
        for arm in dealt(run):
            if arm in arms:
                alike.setdefault(ranks.key(run, arm, "partition"), []).append(arm)
        for mine in alike.values():
            if len(mine) > 1 and any(rule(run, a) in DRAWN for a in mine):
                base = _base(run, mine)
                found.append(Contest(group, base, tuple(a for a in mine if a != base)))
    return found


def _base(run: Run, arms: Sequence[str]) -> str:
    """A random partition; without one the first that is a partition at all."""
    plain = [a for a in arms if rule(run, a) == "random_partition"]
    return next(iter(plain or [a for a in arms if rule(run, a) not in DRAWN] or arms))


def again(deal: Deal) -> float | None:
    """Samples of an epoch that were seen before in it, by whichever rank."""
    found = [sum(s["sizes"]) - (s["samples"] - s["missed"]) for s in deal.all]
    return numbers.mean([float(v) for v in found])


def expected(deal: Deal) -> float | None:
    """Samples that chance leaves out of an epoch, for rules that sample."""
    made = partition_from(deal.settings) if deal.settings.get("name") in DRAWN else None
    n = deal.first["samples"]
    if isinstance(made, Bootstrap):
        return None if made.whole else RandomSampling().missed(n, deal.ranks) * n
    return made.missed(n, deal.ranks) * n if isinstance(made, RandomSampling) else None


def sampling_table(run: Run, words: Words) -> Table | None:
    rows = [
        _row(run, words, contest, arm, backend)
        for contest in contests(run)
        for arm in contest.arms
        for backend in run.backends
        if run.select(arm, backend)
    ]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "missed:samples", "missed_expected:samples", "again:samples"),
        *(f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "gap:points", "verdict"),
    )
    base = words.join(list(dict.fromkeys(contest.base for contest in contests(run))))
    caption = words("table.sampling", margin=f"{100 * MARGIN:g}", arm=base)
    return Table("sampling", caption, head, rows)


def _row(run: Run, words: Words, contest: Contest, arm: str, backend: str) -> list[Cell]:
    trials, deal = run.select(arm, backend), deal_of(run, arm)
    counts: list[float | None] = [None, None, None]
    if deal is not None:
        counts = [deal.mean("missed"), expected(deal), again(deal)]
    found = None if arm == contest.base else gap(run, arm, contest.base, backend)
    return [
        Cell(arm, "code", note=told(partition(run, arm))),
        Cell(backend),
        *(number(numbers.quantity(None if v is None else round(v, 1))) for v in counts),
        plus_minus(spread(t.final_loss for t in trials)),
        plus_minus(spread(accuracies(run, arm, backend).values()), 100.0, 2),
        _gap(found, words),
        _verdict(found, words),
    ]


def _gap(found: Gap | None, words: Words) -> Cell:
    if found is None:
        return number(numbers.NONE)
    ends = "" if found.kind == "few" else span(found, words)
    return Cell(signed(found.mean), "number", note=ends)


def span(found: Gap, words: Words) -> str:
    return words("value.span", low=signed(found.low), high=signed(found.high))


def _verdict(found: Gap | None, words: Words) -> Cell:
    if found is None:
        return Cell(numbers.NONE)
    tone = TONES[found.kind]
    return Cell(f"{SIGNS[tone]} {words(f'gap.{found.kind}')}", tone=tone)


def curves_here(run: Run) -> set[str]:
    """Names of training figures that would show nothing but the curves of this chapter."""
    shown: dict[str, set[str]] = {}
    for contest in contests(run):
        shown.setdefault(contest.group, set()).update(contest.arms)
    groups = run.groups()
    return {
        f"ranks-{slug(group)}"
        for group, arms in shown.items()
        if {a for a in ranks.several(run) if a in groups[group] and run.select(a)} <= arms
    }
