"""The principle: update rules, how ranks combine gradients, what each strategy sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.algorithms.optim import rule_from
from dualml.common.errors import UserError
from dualml.common.registry import cited_source
from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.parallel.aggregation.asynchronous import AsyncParameterServer
from dualml.report import machine, ranks
from dualml.report.blocks import Block, Formula, Prose
from dualml.report.cards import CardFooter, make_card, method_cards, read_formulas
from dualml.report.topics import ReportSection

COST = r"T = p \, \alpha + q \, \beta"


def rule_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per optimizer and set of options that changes its formulas."""
    used: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for arm in ranks.training_arms(run):
        optimizer = run.arms[arm].get("optimizer") or {}
        if optimizer.get("name"):
            used.setdefault((str(optimizer["name"]), *rule_formulas(optimizer)), []).append(arm)
    for (name, formulas, source), arms in used.items():
        does = words.get(f"symbols.{_variant(run, name, arms)}", "")
        if not formulas:
            does = words("intro.unknown_rule", name=name)
        most = 12 if ranks.is_distributed(run) else len(arms)
        footer = CardFooter(arms, source, most=most)
        yield make_card(words, name, formulas, does, footer, code=True)
    if used:
        yield Prose(words("symbols.all"), small=True)


def rule_formulas(optimizer: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the LaTeX formulas of an optimizer given as in the experiment file, ``{"name": "adam",
    "lr": …}`` with its options, and their source; no formulas and an empty source for an unknown
    rule."""
    try:
        known = rule_from({"lr": 1.0, **optimizer})
    except UserError:
        return (), ""
    return tuple(known.formulas()), known.source()


def _variant(run: RunData, name: str, arms: list[str]) -> str:
    """Return the name of the rule, or of the variant that its options select."""
    if name == "sgd" and not any(run.arms[arm].get("batch_size", 1) for arm in arms):
        return "gd"
    uncorrected = run.arms[arms[0]]["optimizer"].get("bias_correction") is False
    return "adam_uncorrected" if name == "adam" and uncorrected else name


def combining_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per way in which several ranks combine their results into one update."""
    used = ((arm, _combination_key(run, arm)) for arm in ranks.multi_rank_arms(run))
    return method_cards(words, "combine", used, "combine.{}.name", "combine.{}.does")


def _combination_key(run: RunData, arm: str) -> str:
    """Return the name in the section ``combine`` of `read_formulas` of the way in which an arm
    combines the results of its ranks."""
    s = ranks.aggregation(run, arm)
    if s.strategy in (ASYNCHRONOUS, "neighbour"):
        return "asynchronous" if s.strategy == ASYNCHRONOUS else s.strategy
    if s.compress in read_formulas()["combine"]:
        return s.compress
    own = "parameters" if s.of == "parameters" else ""
    if s.reduce in ("sum", "max", "median"):
        return "_".join(filter(None, (s.reduce, own)))
    return own or s.reduce


def strategy_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per strategy that an arm trains with or measures (`ranks.strategies`), below the
    formula of the cost and the bytes of the vector."""
    names, several = ranks.strategies(run), ranks.multi_rank_arms(run)
    if names:
        yield Formula(COST)
    nbytes = machine.vector_bytes(run)
    if nbytes is not None and several:
        yield Prose(words("intro.vector", model=run.experiment.get("model"), n=nbytes), small=True)
    for name in names:
        arms = [arm for arm in several if ranks.strategy(run, arm) == name]
        arms += [arm for arm in run.arms if name in run.settings[arm].strategies]
        sizes = sorted({ranks.world_size(run, arm) for arm in arms} - {1})
        texts = [text for n in sizes if (text := schedule_counts(name, n, words))]
        does, source = words.get(f"strategy.{name}", ""), cited_source(strategy_class(name))
        footer = CardFooter(arms, source, texts)
        yield make_card(words, name, formulas(name), does, footer, code=True)


def strategy_class(name: str) -> Any:
    """Return the class of an aggregation strategy, None for an unknown name."""
    return AsyncParameterServer if name == ASYNCHRONOUS else STRATEGIES.get(name)


def formulas(name: str) -> tuple[str, ...]:
    """Return the formulas (LaTeX) of messages m and bytes b of the busiest rank and time T of the
    critical path; for a native collective those of its textbook algorithm. Empty for an unknown
    strategy."""
    textbook = getattr(strategy_class(name), "reference_algorithm", "")
    return getattr(strategy_class(name), "formulas", ()) or (formulas(textbook) if textbook else ())


def schedule_counts(name: str, n: int, words: Messages) -> str:
    """Return the number of messages and the bytes, in multiples of the vector's S bytes, that a
    strategy's schedule sends among n ranks, as text; empty for an unknown strategy."""
    if name not in STRATEGIES:
        return words("strategy_counts.asynchronous", n=n) if name == ASYNCHRONOUS else ""
    schedule = STRATEGIES[name]().schedule(n)
    sent = [schedule.sent_volume(rank, schedule.chunks) for rank in range(n)]
    most, total = (of(chunks for _, chunks in sent) / schedule.chunks for of in (max, sum))
    return words(
        "strategy_counts.schedule",
        n=n,
        steps=len(schedule.steps),
        messages=max(sent)[0],
        bytes=most,
        total=total,
    )


TOPICS = (
    ReportSection("rules", 10, rule_cards, group="principle"),
    ReportSection("combining", 20, combining_cards, group="principle"),
    ReportSection("strategies", 30, strategy_cards, group="principle"),
)
