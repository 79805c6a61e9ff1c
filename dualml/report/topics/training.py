"""Training on several ranks: seconds of an update by strategy, and where its time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from dualml.experiment.exact import single_of
from dualml.report import curves, keys, ranks
from dualml.report.blocks import Block, Cell, Item, Table
from dualml.report.columns import best, number, table, verdict
from dualml.report.families import crowding
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.measures import known, loss_unit, mean, rising, slug
from dualml.report.notes import Notes
from dualml.report.shown import by_name, figure, listed, on_backend, slower, stacked
from dualml.report.topics import Topic
from dualml.report.topics.sampling import shown_here
from dualml.store.run import Run, Serial
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    yield from crowding(run, words)
    groups = dict(_groups(run))
    figures = [_curves(run, words, g, groups[g]) for g in groups if g not in shown_here(run)]
    yield from figures[:1]
    yield from _by_strategy(run, words)
    yield from figures[1:]
    healthy = [a for arms in groups.values() for a in arms if ranks.size(run, a) > 1]
    if any(ranks.parts(run, a, b) for a in healthy for b in run.backends):
        yield _parts(run, words, healthy)
    yield from _table(run, words)


def _groups(run: Run) -> Iterator[tuple[str, list[str]]]:
    """Yield groups with multi-rank arms and without stragglers, and the arms in them that ran."""
    whole = [a for a in ranks.training(run) if not ranks.split(run, a) and run.select(a)]
    for group, arms in run.groups().items():
        ran = [a for a in arms if a in whole]
        if any(ranks.size(run, a) > 1 for a in ran) and not any(ranks.slow(run, a) for a in ran):
            yield group, ran


# --- figures --------------------------------------------------------------------------------------


def _curves(run: Run, words: Words, group: str, arms: Sequence[str]) -> Figure:
    """Return a row per number of ranks; the loss against updates and against seconds."""
    several = [a for a in arms if ranks.size(run, a) > 1]
    alone = [a for a in arms if a not in several]
    if not alone:  # the single-rank baselines, if the group has no single-rank arm
        singles = dict.fromkeys(single_of(a, run.contrast) for a in arms)
        alone = [a for a in singles if a is not None and run.select(a)]
    alike = run.contrast.groups(several, vary=("aggregation.strategy", "world_size"))
    names = {a: ranks.strategy(run, a) for a in several}
    if len(alike) == 1 < len({*names.values()}):  # named by the setting that differs
        owners = {a: Owner(series=name) for a, name in names.items()}
        colors = keys.plain(keys.strategies(names.values()))
    else:
        owners, colors = {a: Owner(a) for a in several}, keys.distinct(several)
    owners = {a: Owner(a) for a in alone} | owners
    loss = Axis(words("axis.loss", unit=loss_unit(run)), "auto")
    panels = []
    for n in sorted({ranks.size(run, a) for a in several}):
        shown = [*alone, *(a for a in several if ranks.size(run, a) == n)]
        for axis, backends in (("updates", run.backends), ("seconds", ranks.frameworks(run))):
            marks: list[Mark] = []
            for arm, backend in ((a, b) for a in shown for b in backends):
                line = curves.line(run.select(arm, backend), "loss", axis)
                if line is not None:
                    x, y = curves.thin(line.x, line.mean)
                    marks.append(Line(x, y, Owner(owners[arm].arm, backend, owners[arm].series)))
            title = words("figure.ranks", n=n) if axis == "updates" else ""
            panels.append(Panel(marks, Axis(words(f"axis.{axis}"), low=0), loss, title))
    title = words("figure.training", group=words.either(f"group.{group}", group))
    black = [words("figure.one_rank")] if alone else []
    notes = [title, *black, words("figure.mean_line"), words("figure.interpolated")]
    finals = listed(owners, run.backends, lambda a, b: numbers.loss(mean(run, a, b, "final_loss")))
    return Figure(
        f"ranks-{slug(group)}", words.sentences(notes),
        words("alt.training", title=title, finals=finals), panels,
        [*(Key("arm", a, color="black") for a in alone), *colors, *keys.backends(run)],
        columns=2, share_y="row",
    )  # fmt: skip


def _parts(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """Return a bar per arm and a panel per backend: mean over the ranks."""

    def share(arm: str, backend: str) -> str:
        part = ranks.share(run, arm, backend)
        return numbers.NONE if part is None else f"{100 * part:.0f} %"

    shown = [b for b in run.backends if any(ranks.parts(run, a, b) for a in arms)]
    panels = []
    for backend in shown:
        marks: list[Mark] = []
        for y, arm in enumerate(arms):
            if rows := ranks.parts(run, arm, backend):
                whole = ranks.average(rows)
                marks += stacked(y, {p: whole[p] for p in keys.PARTS}, 1e3, share(arm, backend))
        y_axis = Axis(names=arms, grid=False)
        panels.append(Panel(marks, Axis(words("axis.update_ms"), low=0), y_axis, backend,
                            height=20 * len(arms)))  # fmt: skip
    values = {"values": listed(arms, shown, share)}
    return figure(words, "communication", panels, keys.parts(words), values, columns=len(panels),
                  share_y="row")  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------


def by_strategy(run: Run, n: int) -> dict[str, str]:
    """Return strategy → arm for the largest set of arms with n ranks that differ only in their
    (exact) strategy; empty with a single one."""
    exact = [
        a
        for a in ranks.several(run)
        if ranks.size(run, a) == n and ranks.exact(ranks.strategy(run, a))
        and not ranks.slow(run, a) and run.select(a)
    ]  # fmt: skip
    groups = run.contrast.groups(exact, vary=("aggregation.strategy",))
    first: dict[str, str] = {}
    for arm in max(groups, key=len, default=[]):
        first.setdefault(ranks.strategy(run, arm), arm)
    return first if len(first) > 1 else {}


def _sizes(run: Run) -> list[int]:
    return sorted({ranks.size(run, a) for a in ranks.several(run)})


def _by_strategy(run: Run, words: Words) -> Iterator[Table]:
    """Yield the table of the largest such set: seconds of an update and share of communication."""
    most = max((by_strategy(run, n) for n in _sizes(run)), key=len, default={})
    timed = ranks.frameworks(run)
    steps = {(a, b): ranks.mean_step(run, a, b) for a in most.values() for b in timed}
    least = {min((s for (_, b), s in steps.items() if b == x and s), default=None) for x in timed}
    rows = []
    for name, arm in sorted(most.items(), key=lambda item: steps[item[1], timed[0]] or 0.0):
        cells: list[str | Cell | float | None] = [name]
        for backend in timed:
            step = steps[arm, backend]
            cells += [best(numbers.ms(step), step in least), ranks.share(run, arm, backend)]
        rows.append(cells)
    head = [
        number(words, f"{b}-{key}", f"{b}, {words(f'column.{key}')}", unit)
        for b in timed
        for key, unit in (("step", "milliseconds"), ("share", "percent"))
    ]
    n = ranks.size(run, next(iter(most.values()))) if most else 0
    yield from table(words, "steps", ["`strategy`", *head], rows, n=n)


def _table(run: Run, words: Words) -> Iterator[Table]:
    """Yield a table with a row per arm and backend: seconds of an update, results, and the
    comparison with one rank."""
    judged: dict[tuple[str, str], Serial] = {}
    for s in run.serial:
        known = judged.get((s.arm, s.backend))
        if known is None or known.verdict == "equal":
            judged[s.arm, s.backend] = s  # the worst over the seeds
    # Groups with a straggler and split models have tables of their own.
    slow = {run.settings[a].group for a in run.arms if ranks.slow(run, a)}
    arms = [
        a for a in ranks.training(run)
        if run.settings[a].group not in slow and not ranks.split(run, a)
    ]  # fmt: skip
    rows = [
        [
            *(arm, b, ranks.size(run, arm)),
            ranks.strategy(run, arm) if ranks.size(run, arm) > 1 else None,
            *(ranks.mean_step(run, arm, b), ranks.share(run, arm, b)),
            *(mean(run, arm, b, of) for of in ("final_loss", "test_accuracy")),
            _against_one(judged.get((arm, b)), words),
        ]
        for arm, b in ranks.ran(run, arms)
    ]
    head = ("`arm`", "backend", "ranks:count", "`strategy`", "step:milliseconds", "share:percent",
            f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "serial")  # fmt: skip
    yield from table(words, "training", head, rows)


def _against_one(s: Serial | None, words: Words) -> Cell | None:
    if s is None:
        return None
    if s.verdict:
        return verdict(s, words, why=False)
    return Cell(words("value.another_rule"), note=words.either(f"rule.{s.reason}", s.reason))


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "training", "table-steps")
    for n in _sizes(run):
        _strategies(notes, run, words, n)
    notes.about("table-training")
    for a, b in combinations(ranks.frameworks(run), 2):
        ratios = {
            arm: second / first
            for arm in ranks.several(run)
            if (first := ranks.mean_step(run, arm, a)) and (second := ranks.mean_step(run, arm, b))
        }
        if ratios:
            notes.say("backends", len(ratios), k=len(ratios), **slower(a, b, ratios, str))
    return notes


def _strategies(notes: Notes, run: Run, words: Words, n: int) -> None:
    """Add the fastest and slowest of the arms that differ only in their strategy, and their shares
    of communication."""
    arms, shares = by_strategy(run, n), []
    fast: dict[str, list[str]] = {}
    slow: dict[str, list[str]] = {}
    for backend in run.backends:
        steps = rising(known({a: ranks.mean_step(run, a, backend) for a in arms.values()}))
        if len(set(steps.values())) > 1:
            for ends, arm in ((fast, next(iter(steps))), (slow, next(reversed(steps)))):
                ends.setdefault(arm, []).append(on_backend(words, backend, steps[arm]))
        values = rising(known({x: ranks.share(run, a, backend) for x, a in arms.items()}))
        if len(values) > 1:
            shares.append(words("say.training.of", backend=backend, values=values))
    if fast:
        notes.say("steps", n=n, fast=by_name(words, fast), slow=by_name(words, slow))
    if shares:
        notes.say("shares", n=n, values=shares)


TOPIC = Topic("training", 400, evidence, findings, lambda run: 55, when=ranks.several)
