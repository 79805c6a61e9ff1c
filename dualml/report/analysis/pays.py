"""The slow link, and when splitting pays, in sentences."""

from __future__ import annotations

from statistics import median

from dualml.report import numbers, ranks
from dualml.report.analysis.base import Finding, Notes
from dualml.report.analysis.splits import ms
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.splits import arms, calibration, slow, spent
from dualml.report.splits import pays as model
from dualml.report.splits.calibration import Calibration
from dualml.report.words import Words

FAR = 1.3  # from here on the model's thresholds are not those of the machine


def slow_link(run: Run, words: Words) -> list[Finding]:
    """By layer against inside: by which factor, and what crosses."""
    notes = Notes(words, "slow_link")
    for backend in spent.shown(run):
        items, factors = [], {}
        for arm, base in slow.slow_splits(run):
            found = spent.against(run, arm, backend, base)
            before, after = (spent.step(run, a, backend) for a in (base, arm))
            if found is None or before is None or after is None:
                continue
            factors[arm] = found.mean
            items.append(
                words(
                    "say.slow_link.item",
                    arm=arm,
                    how=arms.told(run, arm, words),
                    times=numbers.factor(found.mean),
                    before=ms(before.mean),
                    after=ms(after.mean),
                    size=size_of(slow.crossing_bytes(run, arm)),
                    calls=numbers.quantity(slow.crossing_calls(run, arm)),
                )
            )
        if not items:
            continue
        slowed = list(dict.fromkeys(ranks.told_slow(run, a, words) for a in factors))
        notes.say("told", backend=backend, handicap=words.semicolons(slowed),
                  values=words.semicolons(items))  # fmt: skip
        if len(factors) > 1:
            least, most = (f(factors, key=lambda a: factors[a]) for f in (min, max))
            notes.say("order", backend=backend, least=least, most=most)
    return notes


def pays(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "pays")
    for found in model.calibrations(run):
        _constants(notes, words, found)
        asked = model.question(run, found)
        if asked is not None and (found.messages or found.reduces):
            _widths(notes, words, found, asked)
            _bandwidths(notes, words, found, asked)
        _errors(notes, run, found)
    return notes


def _constants(notes: Notes, words: Words, found: Calibration) -> None:
    rates = [f"{arm} {numbers.quantity(rate / 1e9)}" for arm, rate in found.rates.items()]
    notes.say("rate", backend=found.backend, rate=numbers.quantity(found.rate / 1e9),
              values=words.join(rates))  # fmt: skip
    for key, fitted, sizes in (
        ("messages", found.messages, found.sizes[0]),
        ("reduces", found.reduces, found.sizes[1]),
    ):
        if fitted is None:
            notes.warn(f"no_{key}", sizes, backend=found.backend, sizes=sizes,
                       needed=calibration.SIZES)  # fmt: skip
            continue
        beta = fitted.link.beta_s_per_byte
        notes.say(
            key,
            backend=found.backend,
            sizes=sizes,
            low=size_of(fitted.sizes[0]),
            high=size_of(fitted.sizes[1]),
            alpha=numbers.quantity(1e6 * fitted.link.alpha_s),
            rate=words("say.pays.gb", rate=numbers.quantity(1 / beta / 1e9))
            if beta
            else words("say.pays.no_beta"),
            error=numbers.percent(fitted.median_error),
            worst=numbers.percent(fitted.worst_error),
        )


def _widths(notes: Notes, words: Words, found: Calibration, asked: model.Question) -> None:
    items = [
        item
        for pair in model.PAIRS
        if (item := _item(words, pair, model.width_from(*pair, asked, found), "d", found))
    ]
    notes.say("width", backend=found.backend, layers=asked.layers, batch=asked.batch, m=asked.m,
              values=words.semicolons(items))  # fmt: skip


def _bandwidths(notes: Notes, words: Words, found: Calibration, asked: model.Question) -> None:
    items = [
        item
        for pair in model.PAIRS
        if (item := _item(words, pair, model.bandwidth_from(*pair, asked, found), "b", found))
    ]
    notes.say("bandwidth", backend=found.backend, model=asked.model, batch=asked.batch, m=asked.m,
              values=words.semicolons(items))  # fmt: skip


def _item(
    words: Words, pair: tuple[str, str], first: int | None, what: str, found: Calibration
) -> str:
    """Nothing where a fit is missing."""
    needed = {model.INSIDE: found.reduces, model.BY_LAYER: found.messages}
    if any(name in pair and fitted is None for name, fitted in needed.items()):
        return ""
    told = {key: words(f"splits.way.{name}") for key, name in zip("ab", pair, strict=True)}
    if first is None:
        return words(f"say.pays.never_{what}", **told)
    if first == 0:
        return words(f"say.pays.always_{what}", **told)
    value = numbers.quantity(first) if what == "d" else rate_of(first)
    return words(f"say.pays.from_{what}", **told, value=value)


def rate_of(rate: float) -> str:
    """Bytes per second."""
    for power, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= power:
            return f"{numbers.factor(rate / power)} {unit}"
    return f"{numbers.factor(rate)} B/s"


def _errors(notes: Notes, run: Run, found: Calibration) -> None:
    told = {p.arm: p.ratio for p in calibration.predictions(run, found)}
    if not told:
        return
    low, high = (f(told, key=lambda a: told[a]) for f in (min, max))
    typical = median(told.values())
    notes.say("errors", len(told), backend=found.backend, n=len(told),
              typical=numbers.factor(typical), low=numbers.factor(told[low]),
              low_arm=low, high=numbers.factor(told[high]), high_arm=high)  # fmt: skip
    if max(typical, 1 / typical) > FAR:
        notes.warn("far", backend=found.backend, times=numbers.factor(1 / typical))
