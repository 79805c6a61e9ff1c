"""Skewed parts: what each arm learned of every class, how far its ranks drifted apart; by skew, by
how often the ranks average, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.report import keys, ranks
from dualml.report.blocks import Block, Cell, Item, Table
from dualml.report.columns import columns, percent
from dualml.report.deals import SKEWED, deal_of, dealt, partition, rule, settings_text
from dualml.report.figure import Axis, Band, Cells, Figure, Line, Mark, Owner, Panel
from dualml.report.gaps import accuracies, gap, in_words, plus_minus, short
from dualml.report.merged import Merged
from dualml.report.notes import Notes
from dualml.report.spread import spread
from dualml.report.topics import Topic
from dualml.report.uneven import listed, uneven, uneven_table
from dualml.store.run import Array, Run, Trial
from dualml.words import Words, numbers

LEAST = 3  # arms for a rank correlation
MOST_COLUMNS = 3


def skewed(run: Run) -> list[str]:
    """Arms with a partition, of groups in which ranks differ in labels or features by intention
    and arms differ in their partition or let their ranks differ between averages; least first."""
    chosen: list[str] = []
    for arms in run.groups().values():
        here = [a for a in dealt(run) if a in arms]
        rules = {settings_text(partition(run, a)) for a in here}
        loose = any(t.apart for a in here for t in run.select(a))
        if any(rule(run, a) in SKEWED for a in here) and (len(rules) > 1 or loose):
            chosen += here
    return sorted(chosen, key=lambda a: (emd(run, a) is None, round(emd(run, a) or 0.0, 2)))


def emd(run: Run, arm: str) -> float | None:
    """Of the labels, mean over ranks, epochs and seeds."""
    deal = deal_of(run, arm)
    return deal.skew()[0] if deal is not None else None


def apart(trials: Sequence[Trial]) -> tuple[float | None, float | None]:
    """Mean divergence and drift over averagings, ranks and seeds."""
    recorded = [np.concatenate(t.apart) for t in trials if t.apart]
    if not recorded:
        return None, None
    rows = np.concatenate(recorded)
    finite = [rows[np.isfinite(rows[:, k]), k] for k in (1, 2)]
    divergence, drift = (float(v.mean()) if len(v) else None for v in finite)
    return divergence, drift


def by_class(trials: Sequence[Trial]) -> list[float | None]:
    """Test accuracy of each class, mean over the seeds; None where there is no sample of it."""
    known = [t.class_accuracy for t in trials if t.class_accuracy]
    if not known:
        return []
    return [numbers.mean([c[k] for c in known]) for k in range(min(map(len, known)))]


def worst(trials: Sequence[Trial]) -> tuple[int, float] | None:
    """The class with the lowest accuracy."""
    known = [(v, k) for k, v in enumerate(by_class(trials)) if v is not None]
    return (min(known)[1], min(known)[0]) if known else None


# --- evidence -------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    arms = skewed(run)
    classified = [a for a in arms if by_class(run.select(a))]
    if classified:
        yield _classes(run, words, classified)
    loose = [a for a in arms if any(t.apart for t in run.select(a))]
    if loose:
        yield _apart(run, words, loose)
    rows = [
        _row(run, words, arm, backend)
        for arm in arms
        for backend in run.backends
        if run.select(arm, backend)
    ]
    if rows:
        spec = (
            *("`arm`", "`partition`", "of", "backend", "emd:1", "test_accuracy:percent"),
            *("worst_class:percent", "divergence:relative", "drift:relative"),
        )
        yield Table("skew", words("table.skew"), columns(words, *spec), rows)
    yield from uneven_table(run, words)


def _row(run: Run, words: Words, arm: str, backend: str) -> list[Cell | str]:
    trials, far = run.select(arm, backend), emd(run, arm)
    low = worst(trials)
    label = "" if low is None else words("value.class", label=low[0])
    return [
        arm,
        settings_text(partition(run, arm)),
        _combined(run, arm, words),
        backend,
        numbers.NONE if far is None else f"{far:.3f}",
        plus_minus(spread(accuracies(run, arm, backend).values()), 100.0, 2),
        Cell(percent(low[1] if low else None), note=label),
        *(numbers.quantity(v) for v in apart(trials)),
    ]


def _combined(run: Run, arm: str, words: Words) -> str:
    """``gradients`` or ``parameters, every 16``, in one line."""
    settings = ranks.aggregation(run, arm)
    of = words.either(f"of.{settings.of}", settings.of)
    if settings.of != "parameters":
        return of
    text = words("value.averaged", of=of, every=settings.every)
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _classes(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """A panel for each backend: arms down, classes across."""
    shown = [b for b in run.backends if any(by_class(run.select(a, b)) for a in arms)]
    panels = []
    for backend in shown:
        rows = [by_class(run.select(a, backend)) for a in arms]
        most = max(map(len, rows))
        table = np.full((len(arms), most), np.nan)
        for y, row in enumerate(rows):
            table[y, : len(row)] = [np.nan if v is None else 100 * v for v in row]
        panels.append(
            Panel(
                [Cells(table, 100.0, words("axis.class_accuracy"))],
                Axis(words("axis.class"), names=[str(label) for label in range(most)]),
                Axis(names=arms),
                backend,
                height=24 * len(arms),
            )
        )
    lowest = [
        f"{arm} {backend} {numbers.percent(low[1])} ({low[0]})"
        for arm in arms
        for backend in shown
        if (low := worst(run.select(arm, backend))) is not None
    ]
    return Figure(
        "skew-classes",
        words.sentences([words("figure.skew_classes"), _seeds(run, words)]),
        words("alt.classes", values=", ".join(lowest)),
        panels,
        columns=min(MOST_COLUMNS, len(shown)),
        share_y="row",
    )


def _seeds(run: Run, words: Words) -> str:
    return words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds))


def _apart(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """Divergence and drift at every averaging: mean of the ranks, and the range over them."""
    plain = [a for a in arms if rule(run, a) == "random_partition"]
    shown = ["divergence"]
    if any(np.isfinite(_all(run, a, b)[:, 2]).any() for a in arms for b in run.backends):
        shown.append("drift")  # known from the second averaging on
    panels = []
    for column, quantity in enumerate(shown, start=1):
        marks = [m for a in arms for b in run.backends for m in _band(run, a, b, column)]
        means = [float(v) for mark in marks if isinstance(mark, Line) for v in mark.y]
        # A rank that stands still is next to the average: its band leads far down.
        low = min(means) / 2.5 if means else None
        y = Axis(words(f"axis.{quantity}"), "log", low=low)
        panels.append(Panel(marks, Axis(words("axis.updates"), low=0), y))
    ends = [
        f"{arm} {backend} {numbers.quantity(float(np.nanmean(rows[:, 1])))}"
        for arm in arms
        for backend in run.backends
        if len(rows := _all(run, arm, backend)) and np.isfinite(rows[:, 1]).any()
    ]
    return Figure(
        "divergence",
        words.sentences([words("figure.divergence"), _seeds(run, words)]),
        words("alt.divergence", values=", ".join(ends)),
        panels,
        [*keys.distinct(arms, plain[0] if plain else ""), *keys.backends(run)],
        columns=len(shown),
    )


def _all(run: Run, arm: str, backend: str) -> Array:
    """Rows (update, divergence, drift) of every rank and seed, at updates that all seeds made."""
    trials = [t for t in run.select(arm, backend) if t.apart]
    if not trials:
        return np.zeros((0, 3))
    last = min(t.apart[0][-1, 0] for t in trials)
    rows: Array = np.concatenate([rows for t in trials for rows in t.apart])
    return np.asarray(rows[rows[:, 0] <= last])


def _band(run: Run, arm: str, backend: str, column: int) -> Iterator[Mark]:
    rows = _all(run, arm, backend)
    rows = rows[np.isfinite(rows[:, column]) & (rows[:, column] > 0)]
    if not len(rows):
        return
    steps = np.unique(rows[:, 0])
    at = [rows[rows[:, 0] == step, column] for step in steps]
    owner = Owner(arm, backend)
    yield Band(steps, [float(v.min()) for v in at], [float(v.max()) for v in at], owner)
    marker = "circle" if len(steps) < 3 else ""
    yield Line(steps, [float(v.mean()) for v in at], owner, marker=marker)


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, arms = Notes(words, "skew", "table-skew"), skewed(run)
    merged = Merged(notes, words)
    families = run.contrast.groups(arms, vary=("partition",))
    for backend in run.backends:
        for family in families:
            _order(merged, run, words, backend, family)
        _worst(merged, run, backend, arms)
    for arm in arms:
        for backend in run.backends:
            _every(merged, run, words, backend, arm)
            _gradients(merged, run, words, backend, arm)
    merged.close()
    notes.about("table-uneven")
    _uneven(notes, run, words)
    return notes


def plainest(run: Run, arms: Sequence[str]) -> str | None:
    """The arm whose parts are random, to which the others are held."""
    return next((a for a in arms if rule(run, a) == "random_partition"), None)


def _order(merged: Merged, run: Run, words: Words, backend: str, arms: Sequence[str]) -> None:
    """Arms that differ in their partition alone: the more skewed, the further apart, the worse?"""
    here = [a for a in arms if run.select(a, backend) and emd(run, a) is not None]
    if len(here) < 2:
        return
    items = [_item(run, words, backend, a) for a in here]
    merged.say(backend, "order", values=words.semicolons(items))
    _correlation(merged, run, backend, [a for a in here if rule(run, a) != "feature_noise"])
    base = plainest(run, here)
    if base is None:
        return
    gaps = {a: g for a in here if a != base and (g := gap(run, a, base, backend))}
    if gaps:
        few = all(g.kind == "few" for g in gaps.values())
        text = short if few else in_words
        merged.say(
            backend,
            "gaps_few" if few else "gaps",
            base=base,
            seeds=words.count("seed", min(g.seeds for g in gaps.values())),
            values=words.semicolons([f"{a} {text(g, words)}" for a, g in gaps.items()]),
        )
    for arm in here:
        if rule(run, arm) == "feature_noise" and arm != base:
            merged.say(
                backend,
                "features",
                arm=arm,
                emd=f"{emd(run, arm):.3f}",
                divergence=_divergence(run, backend, arm),
                base=base,
                base_divergence=_divergence(run, backend, base),
            )


def _correlation(merged: Merged, run: Run, backend: str, arms: Sequence[str]) -> None:
    skews = [emd(run, a) for a in arms]
    distances = [apart(run.select(a, backend))[0] for a in arms]
    accuracy = [numbers.mean([t.test_accuracy for t in run.select(a, backend)]) for a in arms]
    divergence_rho, rho = (correlation(skews, values) for values in (distances, accuracy))
    if rho is not None and divergence_rho is not None:
        merged.say(
            backend, "correlation", n=len(arms), divergence=_rho(divergence_rho), accuracy=_rho(rho)
        )
    elif rho is not None:
        merged.say(backend, "correlation_accuracy", n=len(arms), accuracy=_rho(rho))


def correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Spearman's rank correlation; None where there is little to rank."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(pairs) < LEAST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return None
    return float(np.corrcoef([places(column) for column in zip(*pairs, strict=True)])[0, 1])


def places(values: Sequence[float]) -> Array:
    """The place of each value among all, equal ones sharing the mean of theirs."""
    column = np.array(values, np.float64)
    below = (column[None, :] < column[:, None]).sum(axis=1)
    alike = (column[None, :] == column[:, None]).sum(axis=1)
    return np.asarray(below + (alike + 1) / 2)


def _rho(x: float) -> str:
    return f"{x:.2f}".replace("-", "−")


def _divergence(run: Run, backend: str, arm: str) -> str:
    return numbers.quantity(apart(run.select(arm, backend))[0])


def _item(run: Run, words: Words, backend: str, arm: str) -> str:
    trials = run.select(arm, backend)
    distance = apart(trials)[0]
    return words(
        "say.skew.item" if distance is not None else "say.skew.item_alike",
        arm=arm,
        emd=f"{emd(run, arm):.3f}",
        divergence=numbers.quantity(distance),
        accuracy=numbers.percent(numbers.mean([t.test_accuracy for t in trials])),
    )


def _worst(merged: Merged, run: Run, backend: str, arms: Sequence[str]) -> None:
    known = {a: low for a in arms if (low := worst(run.select(a, backend))) is not None}
    base = plainest(run, list(known))
    if len(known) < 2 or base is None:
        return
    arm = min(known, key=lambda a: known[a][1])
    if arm != base:
        merged.say(
            backend,
            "worst",
            arm=arm,
            label=known[arm][0],
            accuracy=numbers.percent(known[arm][1]),
            base=base,
            base_label=known[base][0],
            base_accuracy=numbers.percent(known[base][1]),
        )


def _every(merged: Merged, run: Run, words: Words, backend: str, arm: str) -> None:
    """Against the same arm that averages more often, the next one where there are several."""
    every = ranks.aggregation(run, arm).every
    alike = run.contrast.partners(arm, vary=("aggregation.every",))
    others = {
        a: k for a in skewed(run) if a in alike and (k := ranks.aggregation(run, a).every) < every
    }
    if not others:
        return
    other = max(others, key=lambda a: others[a])
    difference = gap(run, arm, other, backend)
    if difference is not None:
        near, far = (apart(run.select(a, backend))[0] for a in (other, arm))
        merged.say(
            backend,
            "every" if far is not None else "every_end",
            arm=arm,
            other=other,
            every=every,
            other_every=others[other],
            divergence=numbers.quantity(far),
            other_divergence=numbers.quantity(near),
            gap=in_words(difference, words),
        )


def _gradients(merged: Merged, run: Run, words: Words, backend: str, arm: str) -> None:
    """Gradients combined at every update against parameters averaged now and then."""
    if ranks.aggregation(run, arm).of != "gradients":
        return
    alike = run.contrast.partners(arm, vary=("aggregation.of", "aggregation.every"))
    for other in (a for a in skewed(run) if a in alike):
        every = ranks.aggregation(run, other).every
        difference = gap(run, arm, other, backend)
        if every == 1 or difference is None:
            continue
        low, other_low = (worst(run.select(a, backend)) for a in (arm, other))
        merged.say(
            backend,
            "gradients",
            arm=arm,
            other=other,
            every=every,
            gap=in_words(difference, words),
            worst=numbers.percent(low[1] if low else None),
            other_worst=numbers.percent(other_low[1] if other_low else None),
        )


def _uneven(notes: Notes, run: Run, words: Words) -> None:
    for u in uneven(run):
        s = u.deal.first
        notes.say(
            "uneven" if u.whole else "uneven_partial",
            arms=words.join(u.arms),
            seed=u.deal.seed,
            ends=listed(u.ends),
            updates=numbers.quantity(u.updates),
            rank=u.first,
            end=numbers.quantity(u.ends[u.first]),
            last=numbers.quantity(u.last),
            batch=numbers.quantity(sum(u.each)),
            n=numbers.quantity(s["samples"]),
            seen=numbers.quantity(s["samples"] - s["missed"]),
        )


TOPIC = Topic("skew", 520, evidence, findings, leads=lambda run: 50 if skewed(run) else 0)
