"""What other rules of combining the ranks change: each held against the plain one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dualml.aggregation import ASYNCHRONOUS
from dualml.aggregation.settings import Aggregation
from dualml.report import ranks
from dualml.report.blocks import Block, Cell, Item
from dualml.report.columns import Line as Row
from dualml.report.columns import percent, table
from dualml.report.measures import loss_unit
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

Test = Callable[[Aggregation], object]


@dataclass(frozen=True)
class Rule:
    """A way to combine that is not the plain one.

    Args:
        applies: whether an arm combines so.
        vary: what alone differs between it and the arm it is held against.
        plain: how that one combines.
        gradients: whether it may also combine gradients where this one combines parameters.
    """

    applies: Test
    vary: tuple[str, ...]
    plain: Test = lambda a: True
    gradients: bool = False


#: In the order in which they are asked: the first that applies.
RULES = {
    "sum": Rule(lambda a: a.reduce == "sum", ("aggregation.reduce", "optimizer.lr"),
                lambda a: a.reduce == "weighted"),
    "uneven": Rule(lambda a: a.reduce == "mean", ("aggregation.reduce",),
                   lambda a: a.reduce == "weighted"),
    "asynchronous": Rule(lambda a: a.strategy == ASYNCHRONOUS,
                         ("aggregation.strategy", "aggregation.arrival"),
                         lambda a: a.strategy == "all_reduce", gradients=True),
    "neighbour": Rule(lambda a: a.strategy == "neighbour", ("aggregation.strategy",),
                      lambda a: a.strategy == "all_reduce", gradients=True),
    "local": Rule(lambda a: a.every > 1, ("aggregation.every",), lambda a: a.every == 1,
                  gradients=True),
    "parameters": Rule(lambda a: a.of == "parameters", ("aggregation.of",)),
    "compress": Rule(lambda a: a.compress != "none",
                     ("aggregation.compress", "aggregation.fraction"),
                     lambda a: a.compress == "none"),
    "one_by_one": Rule(lambda a: not a.bucket_bytes, ("aggregation.bucket_bytes",)),
}  # fmt: skip


def held(run: Run) -> Iterator[tuple[str, str, str | None]]:
    """Every healthy arm that combines otherwise, by which rule, and what it is held against."""
    for arm in ranks.several(run):
        settings = ranks.aggregation(run, arm)
        name = next((name for name, rule in RULES.items() if rule.applies(settings)), "")
        if name and run.select(arm) and not ranks.slow(run, arm):
            yield arm, name, _plain(run, arm, RULES[name])


def _plain(run: Run, arm: str, rule: Rule) -> str | None:
    def fits(other: str) -> bool:
        return bool(rule.plain(ranks.aggregation(run, other)) and run.select(other))

    def of_gradients(other: str) -> bool:
        return fits(other) and ranks.aggregation(run, other).of == "gradients"

    exactly = run.contrast.partner(arm, vary=rule.vary, where=fits)
    if exactly is not None or not rule.gradients:
        return exactly
    return run.contrast.partner(arm, vary=(*rule.vary, "aggregation.of"), where=of_gradients)


def _texts(run: Run, arm: str, backend: str) -> list[str]:
    """Loss and accuracy at the end, milliseconds of an update."""
    return [
        numbers.loss(ranks.loss(run, arm, backend)),
        percent(ranks.accuracy(run, arm, backend)),
        numbers.ms(ranks.mean_step(run, arm, backend)),
    ]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Each value, and beneath it that of the arm it is held against."""
    rows: list[Row] = []
    for arm, _, other in held(run):
        for _, backend in ranks.ran(run, [arm] if other else []):
            if other is not None and run.select(other, backend):
                pairs = zip(_texts(run, arm, backend), _texts(run, other, backend), strict=True)
                differs = [key.rpartition(".")[2] for key in run.contrast.varied([arm, other])]
                cells = [Cell(text, note=plain) for text, plain in pairs]
                rows.append([arm, backend, other, ", ".join(differs), *cells])
    head = ("`arm`", "backend", "`against`", "`differs`", f"final_loss:{loss_unit(run)}",
            "test_accuracy:percent", "step:milliseconds")  # fmt: skip
    yield from table(words, "combination", head, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "combination", "table-combination")
    for arm, name, other in held(run):
        settings = ranks.aggregation(run, arm)
        values = {
            "arm": arm, "other": other, "n": ranks.size(run, arm), "every": settings.every,
            "values": _against(run, words, arm, other) if other else "",
        }  # fmt: skip
        if name == "compress":
            # Half of each number; or the chosen entries, each with its place of four bytes.
            share = 0.5 if settings.compress == "fp16" else min(1.0, 2 * settings.fraction)
            values["saved"] = numbers.percent(1 - share)
        if name == "sum":
            rates = [float(run.settings[a or arm].optimizer.get("lr") or 0) for a in (arm, other)]
            effective = rates[0] * ranks.size(run, arm)  # a sum is n times the mean
            values |= {"rate": f"{rates[0]:g}", "effective": f"{effective:g}",
                       "other_rate": f"{rates[1]:g}"}  # fmt: skip
            same = abs(effective - rates[1]) <= 1e-9 * rates[1]
            name = "sum_alone" if not values["values"] else "sum_same" if same else "sum"
        if values["values"] or name == "sum_alone":
            notes.say(name, **values)
    return notes


def _against(run: Run, words: Words, arm: str, other: str) -> str:
    """Backend by backend: loss and time of an update, of the one arm and of the other."""
    items = []
    for backend in run.backends:
        (loss, _, step), (other_loss, _, other_step) = (
            _texts(run, name, backend) for name in (arm, other)
        )
        texts = {"loss": loss, "other_loss": other_loss, "step": step, "other_step": other_step}
        if numbers.NONE not in texts.values():
            items.append(words("say.combination.item", backend=backend, **texts))
    return words.semicolons(items)


TOPIC = Topic("combination", 405, evidence, findings)
