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
from dualml.report.cards import CardFooter, make_card, method_cards
from dualml.report.topics import ReportSection

COST = r"T = p \, \alpha + q \, \beta"
_PART = r"g_{t,r} = \frac{1}{b_r} \sum_{i \in B_{t,r}} \nabla \ell_i ( \theta_{t-1} )"
_LOCAL = r"\theta_{t,r} = \theta_{t-1,r} - \eta \, g_{t,r}"
#: Way to combine the ranks' results → the formulas of one update.
COMBINE: dict[str, tuple[str, ...]] = {
    "weighted": (_PART, r"g_t = \sum_{r=0}^{n-1} \frac{b_r}{B} \, g_{t,r}"),
    "mean": (_PART, r"g_t = \frac{1}{n} \sum_{r=0}^{n-1} g_{t,r}"),
    "sum": (_PART, r"g_t = \sum_{r=0}^{n-1} g_{t,r}", r"\hat{\eta} = n \, \eta"),
    "max": (_PART, r"g_t = \max_r \, g_{t,r}"),
    "median": (_PART, r"g_t = \operatorname{med}_r \, g_{t,r}"),
    "sum_parameters": (_LOCAL, r"\theta_{t,r} \leftarrow \sum_{s=0}^{n-1} \theta_{t,s}"),
    "max_parameters": (_LOCAL, r"\theta_{t,r} \leftarrow \max_s \, \theta_{t,s}"),
    "median_parameters": (_LOCAL, r"\theta_{t,r} \leftarrow \operatorname{med}_s \, \theta_{t,s}"),
    "parameters": (_LOCAL, r"\theta_{t,r} \leftarrow \sum_{s=0}^{n-1} \frac{b_s}{B} \theta_{t,s}"),
    "neighbour": (
        _LOCAL,
        r"\theta_{t,r} \leftarrow \frac{1}{3} ( \theta_{t,r-1} + \theta_{t,r} + \theta_{t,r+1} )",
    ),
    "asynchronous": (r"\theta_{v+1} = \theta_v - \eta \frac{b_r}{B} g_r ( \theta_{v - \tau} )",),
    "fp16": (r"g_t = \sum_{r=0}^{n-1} h ( \frac{b_r}{B} \, g_{t,r} )",),
    "topk": (
        r"p_{t,r} = \frac{b_r}{B} \, g_{t,r} + e_{t-1,r}",
        r"e_{t,r} = p_{t,r} - s_{t,r}",
        r"g_t = \sum_{r=0}^{n-1} s_{t,r}",
    ),
}


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
    """Return the formulas of ``{"name": "adam", "lr": …}`` with its options, and their source;
    empty for an unknown rule."""
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
    return method_cards(words, COMBINE, used, "combine.{}.name", "combine.{}.does")


def _combination_key(run: RunData, arm: str) -> str:
    """Return the key of `COMBINE` that an arm uses."""
    s = ranks.aggregation(run, arm)
    if s.strategy in (ASYNCHRONOUS, "neighbour"):
        return "asynchronous" if s.strategy == ASYNCHRONOUS else s.strategy
    if s.compress in COMBINE:
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
    """Return messages m and bytes b of the busiest rank and time T of the critical path; for a
    native collective those of its textbook algorithm. Empty for an unknown strategy."""
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
