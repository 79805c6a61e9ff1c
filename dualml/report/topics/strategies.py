"""The principle of several ranks: what each strategy sends."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.aggregation import ASYNCHRONOUS, NATIVE, REPLICAS, STRATEGIES
from dualml.aggregation.asynchronous import Asynchronous
from dualml.registry import source_of
from dualml.report import machine, ranks
from dualml.report.blocks import Block, Formula, Prose
from dualml.report.cards import card
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

COST = r"T = p \, \alpha + q \, \beta"
#: Strategies whose messages nobody outside the framework sees.
UNSEEN = (NATIVE, REPLICAS)


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """One card for each strategy that trained or was measured."""
    names = ranks.strategies(run)
    if names:
        yield Formula(COST)
    nbytes = machine.vector_bytes(run)
    if nbytes is not None and ranks.several(run):
        model, n = run.experiment.get("model"), numbers.quantity(nbytes)
        yield Prose(words("intro.vector", model=model, n=n), small=True)
    for name in names:
        arms = [arm for arm in ranks.several(run) if ranks.strategy(run, arm) == name]
        arms += [arm for arm in run.arms if name in run.settings[arm].strategies]
        sizes = sorted({ranks.size(run, arm) for arm in arms} - {1})
        yield card(
            words,
            name,
            formulas(name),
            words.either(f"strategy.{name}", ""),
            arms,
            counts=[text for n in sizes if (text := counts(name, n, words))],
            source=source(name),
            code=True,
        )


def formulas(name: str) -> tuple[str, ...]:
    """Messages m and bytes b of the busiest rank, time T of the critical path; of a native
    collective those of the textbook's. Empty for a strategy that is not known here."""
    if name == ASYNCHRONOUS:
        return Asynchronous.formulas
    if name not in STRATEGIES:
        return ()
    kind = STRATEGIES[name]
    return kind.formulas or (STRATEGIES[kind.textbook].formulas if kind.textbook else ())


def source(name: str) -> str:
    """What the strategy's docstring names as its source."""
    kind = Asynchronous if name == ASYNCHRONOUS else STRATEGIES.get(name)
    return source_of(kind) if kind is not None else ""


def counts(name: str, n: int, words: Words) -> str:
    """What its schedule sends among n ranks, in multiples of S."""
    if name == ASYNCHRONOUS:
        return words("strategy_counts.asynchronous", n=n)
    if name not in STRATEGIES:
        return ""
    schedule = STRATEGIES[name]().schedule(n)
    sent = [schedule.sent(rank, schedule.chunks) for rank in range(n)]
    most, total = max(sent), sum(moved for _, moved in sent)
    return words(
        "strategy_counts.schedule",
        n=n,
        steps=words.count("step", len(schedule.steps)),
        messages=words.count("message", most[0]),
        bytes=numbers.factor(max(moved for _, moved in sent) / schedule.chunks),
        total=numbers.factor(total / schedule.chunks),
    )


TOPIC = Topic("strategies", 30, evidence, part="principle")
