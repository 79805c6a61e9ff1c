"""The report as data: the same parts in the same order for HTML and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.optim import RULES
from dualml.report import machine, numbers, ranks, tables, verdict_tables
from dualml.report.analysis import Topic, analyse, headline
from dualml.report.cells import Table
from dualml.report.chapters import Chapter, chapters
from dualml.report.code import HOMES, listings, shared
from dualml.report.figures import figures
from dualml.report.formulas import Principle, principle
from dualml.report.model import Run
from dualml.report.rank_code import Excerpts, rank_code
from dualml.report.schedules import schedules
from dualml.report.serial import serial_figures, serial_tables
from dualml.report.settings import settings
from dualml.report.splits.arms import split_arms
from dualml.report.splits.code import split_code
from dualml.report.splits.grids import grid_figures
from dualml.report.splits.plans import plan_figures
from dualml.report.splits.principle import way_cards
from dualml.report.strategies import COST, Card, cards, combining, short
from dualml.report.style import Figure
from dualml.report.words import Words


@dataclass(frozen=True)
class Rule:
    """A rule the arms used: its formulas (None: unknown here) and what they mean."""

    name: str
    arms: Sequence[str]
    principle: Principle | None
    explanation: str


@dataclass(frozen=True)
class Document:
    """Everything a page shows; texts are already in the page's language."""

    words: Words
    title: str
    question: str
    tone: str
    headline: str
    status: str
    notices: Sequence[str]
    findings: Sequence[str]
    failures: Table | None
    rules: Sequence[Rule]
    combining: Sequence[Card]
    strategies: Sequence[Card]
    cost_formula: str
    vector: str
    schedules: Sequence[Figure]
    splitting: Sequence[Card]
    plans: Sequence[Figure]
    orders: Sequence[Figure]
    code: Sequence[Excerpts]
    settings: Sequence[Table]
    figures: Sequence[Figure]
    distances: Sequence[Figure]
    results: Sequence[Table]
    chapters: Sequence[Chapter]
    reading: str
    calibration: Sequence[str]
    parity: Sequence[Table]
    serial_distances: Sequence[Figure]
    serial: Sequence[Table]
    serial_title: str
    serial_intro: str
    topics: Sequence[Topic]
    footer: str

    @property
    def drawn(self) -> list[Figure]:
        """Every figure of the page, once."""
        mine = [f for c in self.chapters for f in c.figures]
        more = (*self.distances, *self.serial_distances)
        principle = (*self.schedules, *self.plans, *self.orders)
        return [*principle, *mine, *self.figures, *more]


def compose(run: Run, words: Words) -> Document:
    """Everything computed and put into words."""
    tone, sentence = headline(run, words)
    drawn = list(figures(run, words))
    distances = [f for f in drawn if "-distance" in f.name]
    title = _own(run.experiment.get("title"), words) or str(run.meta.get("name") or "dualml")
    parity = [verdict_tables.parity(run, words), verdict_tables.outcome(run, words)]
    results: list[Table | None] = [tables.trials(run, words)] if ranks.training(run) else []
    if all(ranks.size(run, arm) == 1 for arm in run.main_arms()) and run.main_arms():
        results += [tables.reached(run, words), tables.rough(run, words)]
    return Document(
        words=words,
        title=title,
        question=_own(run.experiment.get("question"), words),
        tone=tone,
        headline=sentence,
        status=_status(run, words),
        notices=_notices(run, words),
        findings=[str(text.get(words.lang) or text.get("en") or "") for text in run.findings],
        failures=tables.failures(run, words),
        rules=_rules(run, words),
        combining=combining(run, words),
        strategies=cards(run, words),
        cost_formula=COST,
        vector=_vector(run, words),
        schedules=list(schedules(run, words)),
        splitting=way_cards(run, words),
        plans=list(plan_figures(run, words)),
        orders=list(grid_figures(run, words)),
        code=_code(run, words),
        settings=settings(run, words),
        figures=[f for f in drawn if f not in distances],
        distances=distances,
        results=[t for t in results if t is not None],
        chapters=chapters(run, words),
        reading=words("intro.chapters_split" if _split_alone(run) else "intro.chapters"),
        calibration=_calibration(run, words),
        parity=[t for t in parity if t is not None],
        serial_distances=list(serial_figures(run, words)),
        serial=serial_tables(run, words),
        serial_title=words("page.serial_split" if _split_alone(run) else "page.serial"),
        serial_intro=words("intro.serial_split" if _split_alone(run) else "intro.serial"),
        topics=analyse(run, words),
        footer=words("page.footer", version=run.meta.get("dualml") or "–"),
    )


def _split_alone(run: Run) -> bool:
    """Whether ranks share one model wherever there are several."""
    return bool(split_arms(run)) and not ranks.strategies(run)


def _own(text: object, words: Words) -> str:
    """A text of the experiment file, which may be one string or one per language."""
    if isinstance(text, dict):
        return str(text.get(words.lang) or text.get("en") or next(iter(text.values()), ""))
    return str(text or "")


def _status(run: Run, words: Words) -> str:
    good, total = sum(t.ok for t in run.trials), len(run.trials)
    if good < total:
        return words("status.some", ok=good, n=total)
    return words("status.all_ok_one") if total == 1 else words("status.all_ok", n=total)


def _notices(run: Run, words: Words) -> list[str]:
    notices = []
    data, wanted = run.meta.get("data") or {}, run.experiment.get("data") or {}
    notice = data.get("notice")
    if notice:
        text = _own(notice, words)
        notices.append(text if isinstance(notice, dict) else words("page.message", text=text))
    elif data.get("source") == "embedded" and wanted.get("name") not in (None, data.get("name")):
        notices.append(words("page.embedded", wanted=wanted["name"], name=data.get("name")))
    if run.experiment.get("quick"):
        key = "quick_ranks" if ranks.distributed(run) else "quick"
        notices.append(words(f"say.caveats.{key}"))
    if len(run.folders) > 1:
        notices.append(words("page.machines", n=len(run.folders)))
    return notices


def _rules(run: Run, words: Words) -> list[Rule]:
    """One per optimizer and set of options that changes its formulas, in the order of the arms."""
    seen: dict[tuple[str, Principle | None], list[str]] = {}
    for arm in ranks.training(run):
        optimizer = run.arms[arm].get("optimizer") or {}
        if optimizer.get("name"):
            seen.setdefault((str(optimizer["name"]), principle(optimizer)), []).append(arm)
    return [
        Rule(
            name=name,
            arms=short(arms, words) if ranks.distributed(run) else arms,
            principle=known,
            explanation=words.either(f"symbols.{_variant(run, name, arms)}", ""),
        )
        for (name, known), arms in seen.items()
    ]


def _variant(run: Run, name: str, arms: list[str]) -> str:
    """The rule's name, or that of the variant its options make of it."""
    if name == "sgd" and not any(run.arms[arm].get("batch_size", 1) for arm in arms):
        return "gd"
    optimizer = run.arms[arms[0]]["optimizer"]
    uncorrected = name == "adam" and optimizer.get("bias_correction") is False
    return "adam_uncorrected" if uncorrected else name


def _vector(run: Run, words: Words) -> str:
    """S of this run's model."""
    nbytes = machine.vector_bytes(run)
    if nbytes is None or not ranks.several(run):
        return ""
    return words("intro.vector", model=run.experiment.get("model"), n=numbers.quantity(nbytes))


def _code(run: Run, words: Words) -> list[Excerpts]:
    """What combines the ranks, then our source of every optimizer and what all of them share."""
    made = [*rank_code(run, words), *split_code(run, words)]
    present = {run.framework(b) for b in run.backends}
    # The reference is always shown: it is the rule as the paper writes it.
    shown = [f for f in HOMES if f == "numpy" or f in present]
    rules = [run.arms[arm].get("optimizer") or {} for arm in ranks.training(run)]
    names = dict.fromkeys(str(rule.get("name")) for rule in rules)
    made += [Excerpts(name, listings(name, shown), True) for name in names if name in RULES]
    if rules:
        made.append(Excerpts(words("page.shared"), shared(shown)))
    return made


def _calibration(run: Run, words: Words) -> list[str]:
    if run.comparisons is None:
        return [words("intro.no_parity")]
    said = [words("intro.parity"), words("intro.envelope")]
    if run.parity_settings:
        values = [
            f"{words.either(f'parity_setting.{k}', k)} {numbers.quantity(v)}"
            for k, v in run.parity_settings.items()
        ]
        said.append(words("intro.envelope_settings", values=words.join(values)))
    return said
