"""Tables of arms with several ranks: what was set, what it cost, what one slow rank did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.aggregation import ASYNCHRONOUS
from dualml.report import fits, numbers, ranks
from dualml.report.bottleneck import others_slowdown, slow_arms, waiting
from dualml.report.cells import SIGNS, VERDICT_TONES, Cell, Head, Table, heads, number, percent
from dualml.report.collectives import size_of
from dualml.report.deals import told as told_rule
from dualml.report.model import Run, Serial
from dualml.report.style import loss_unit
from dualml.report.words import Words


def rank_settings(run: Run, words: Words) -> list[Table]:
    """How each arm combines, what was measured alone, and from what each primitive is made."""
    made = [_aggregation(run, words), _measurements(run, words), _how(run, words)]
    return [table for table in made if table.rows]


def _aggregation(run: Run, words: Words) -> Table:
    rows, arms = [], ranks.several(run)
    dealt = any(run.arms[arm].get("partition") for arm in arms)
    pinned = any(run.arms[arm].get("cores") for arm in arms)
    for arm in arms:
        rule, cores = run.arms[arm].get("partition"), run.arms[arm].get("cores")
        s = ranks.aggregation(run, arm)
        bucket = size_of(s["bucket_bytes"]) if s["bucket_bytes"] else words("value.one_by_one")
        packed = {"none": numbers.NONE, "topk": f"topk {100 * s['fraction']:g} %"}
        order = s["arrival"] if s["strategy"] == ASYNCHRONOUS else numbers.NONE
        rows.append(
            [
                Cell(arm, "code"),
                number(str(ranks.size(run, arm))),
                *([number(str(cores) if cores else numbers.NONE)] if pinned else []),
                *([Cell(told_rule(rule) if rule else numbers.NONE, "code")] if dealt else []),
                Cell(s["strategy"], "code"),
                Cell(words.either(f"of.{s['of']}", s["of"])),
                Cell(words.either(f"reduce.{s['reduce']}", s["reduce"])),
                number(numbers.quantity(s["every"])),
                Cell(bucket),
                Cell(packed.get(s["compress"], s["compress"])),
                Cell(words.either(f"arrival.{order}", order)),
                Cell(ranks.told_slow(run, arm, words)),
            ]
        )
    head = heads(
        words,
        *("arm", "ranks:count"),
        *(["cores_each:count"] if pinned else []),
        *(["partition"] if dealt else []),
        *("strategy", "of", "reduce", "every:updates", "bucket", "compress", "arrival"),
        "handicap",
    )
    return Table("aggregation", words("table.aggregation"), head, rows)


def _measurements(run: Run, words: Words) -> Table:
    rows = []
    for arm in run.arms:
        if not ranks.trains(run, arm):
            s = run.arms[arm]
            rows.append(
                [
                    Cell(arm, "code"),
                    number(str(ranks.size(run, arm))),
                    Cell(", ".join(s.get("strategies") or ()), "code"),
                    Cell(", ".join(size_of(x) for x in s.get("sizes") or ())),
                    number(numbers.quantity(s.get("seconds", 0.5))),
                ]
            )
    head = heads(words, "arm", "ranks:count", "strategies", "sizes", "budget:seconds")
    return Table("measurements", words("table.measurements"), head, rows)


def primitives(run: Run) -> dict[str, dict[str, list[str]]]:
    """Primitive → backend → how it was executed, each way once."""
    found: dict[str, dict[str, list[str]]] = {}
    for t in run.trials:
        for name, told in t.how.items():
            if str(told).partition(":")[0] in HOW_TONES:
                ways = found.setdefault(name, {}).setdefault(t.backend, [])
                if told not in ways:
                    ways.append(str(told))
    return found


HOW_TONES = {"native": "good", "composed": "near", "unsupported": "muted"}


def _how(run: Run, words: Words) -> Table:
    known = primitives(run)
    shown = [b for b in run.backends if any(b in ways for ways in known.values())]
    rows = []
    for name, ways in known.items():
        cells = [Cell(name, "code")]
        for backend in shown:
            told = ways.get(backend, [])
            kinds = list(dict.fromkeys(way.partition(":")[0] for way in told))
            details = [way.partition(":")[2].strip() for way in told]
            tone = HOW_TONES[kinds[-1]] if kinds else ""
            text = " / ".join(words(f"how.{kind}") for kind in kinds) or numbers.NONE
            cells.append(Cell(text, tone=tone, note=" / ".join(details)))
        rows.append(cells)
    head = [*heads(words, "primitive"), *(Head(b) for b in shown)]
    return Table("how", words("table.how"), head, rows)


def _serial_cell(s: Serial | None, words: Words) -> Cell:
    if s is None:
        return Cell(numbers.NONE)
    if not s.verdict:
        return Cell(words("value.another_rule"), note=words.either(f"rule.{s.reason}", s.reason))
    tone = VERDICT_TONES.get(s.verdict, "muted")
    text = words.either(f"verdict.{s.verdict.replace(' ', '_')}", s.verdict)
    return Cell(f"{SIGNS[tone]} {text}", tone=tone)


def _beside_slow(run: Run, arm: str) -> bool:
    """A slow arm or one of its group: the table of slowdowns has them."""
    group = run.arms[arm].get("group")
    return any(ranks.slow(run, a) and run.arms[a].get("group") == group for a in run.arms)


def training_table(run: Run, words: Words) -> Table | None:
    """An arm and backend in each row: time of an update, what it learned, against one worker."""
    judged: dict[tuple[str, str], Serial] = {}
    for s in run.serial:
        old = judged.get((s.arm, s.backend))
        if old is None or old.verdict == "equal":
            judged[s.arm, s.backend] = s  # of several seeds the worst
    rows = []
    for arm in ranks.training(run):
        if _beside_slow(run, arm) or ranks.split(run, arm):
            continue
        for backend in run.backends:
            trials = run.select(arm, backend)
            if not trials:
                continue
            step, share = ranks.mean_step(run, arm, backend), ranks.share(run, arm, backend)
            accuracy = numbers.mean([t.test_accuracy for t in trials])
            several = ranks.size(run, arm) > 1
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(backend),
                    number(str(ranks.size(run, arm))),
                    Cell(ranks.strategy(run, arm) if several else numbers.NONE, "code"),
                    number(numbers.quantity(1e3 * step) if step else numbers.NONE),
                    number(percent(share)),
                    number(numbers.loss(numbers.mean([t.final_loss for t in trials]))),
                    number(percent(accuracy)),
                    _serial_cell(judged.get((arm, backend)), words),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "ranks:count", "strategy", "step:milliseconds", "share:percent"),
        *(f"final_loss:{loss_unit(run)}", "test_accuracy:percent", "serial"),
    )
    return Table("training", words("table.training"), head, rows)


def slow_table(run: Run, words: Words) -> Table | None:
    rows = []
    for arm in slow_arms(run):
        for backend in run.backends:
            base = ranks.base_of(run, arm)
            before = ranks.update_seconds(run, base, backend) if base else None
            after = ranks.update_seconds(run, arm, backend)
            if before is None or after is None:
                continue
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(backend),
                    Cell(ranks.told_slow(run, arm, words)),
                    *(number(numbers.quantity(1e3 * v)) for v in (before, after)),
                    number(numbers.factor(fits.measured_slowdown(run, arm, backend))),
                    number(numbers.factor(fits.predicted_slowdown(run, arm, backend))),
                    number(numbers.factor(others_slowdown(run, arm, backend))),
                    number(percent(waiting(run, arm, backend))),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "handicap", "without:milliseconds", "with:milliseconds"),
        *("slowdown:relative", "slowdown_predicted:relative", "slowdown_others:relative"),
        "others_wait:percent",
    )
    return Table("slowdown", words("table.slowdown"), head, rows)


def staleness_table(run: Run, words: Words) -> Table | None:
    rows = []
    for arm in ranks.several(run):
        for backend in run.backends:
            for t in run.select(arm, backend):
                told: Mapping[str, Any] = t.staleness or {}
                if told:
                    each = [numbers.quantity(v) for v in told.get("ranks") or ()]
                    rows.append(
                        [
                            Cell(arm, "code"),
                            Cell(backend),
                            number(str(t.seed)),
                            number(numbers.quantity(told.get("mean"))),
                            number(numbers.quantity(told.get("max"))),
                            Cell(" · ".join(each)),
                        ]
                    )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "seed", "staleness:updates", "staleness_max:updates"),
        "staleness_ranks",
    )
    return Table("staleness", words("table.staleness"), head, rows)
