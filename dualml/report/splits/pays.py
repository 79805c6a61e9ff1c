"""When splitting pays: the calibrated model against the measured arms, and its thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dualml.cost.compare import crossovers
from dualml.cost.link import Link
from dualml.cost.split import FASTEST, WIDEST, tensor_parallel_step, vertical_step
from dualml.report import numbers, style
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.model import Run
from dualml.report.splits import arms, calibration, spent
from dualml.report.splits.calibration import Calibration
from dualml.report.strategies import Card
from dualml.report.style import Figure
from dualml.report.words import Words

_REDUCE = r"A(S) = 2 (n-1) \alpha + 2 \frac{n-1}{n} S \beta"
FORMULAS = (
    r"C = 6 B \sum_{i=1}^{L} d_{i-1} d_i \quad T_1 = \frac{C}{F}",
    r"T_h = \frac{C}{n F} + \sum ( A(4 B d_{i+1}) + A(4 B d_{i-1}) )",
    _REDUCE,
    r"T_v = f_0 + t + f_1 + (m-1) \max ( f_0 , t , f_1 ) + b_1 + t + b_0 "
    r"+ (m-1) \max ( b_1 , t , b_0 )",
    r"t = \alpha + \beta \cdot 4 \frac{B}{m} d",
)
SOURCE = "Shoeybi et al. 2019, Megatron-LM, sec. 3; Huang et al. 2019, GPipe, sec. 2.3"
INSIDE, BY_LAYER, WHOLE = "inside", "by_layer", "whole"
PAIRS = ((INSIDE, BY_LAYER), (INSIDE, WHOLE), (BY_LAYER, WHOLE))
COLORS = {INSIDE: "#6F5AA0", BY_LAYER: "#2E6DA4"}


@dataclass(frozen=True)
class Question:
    """What the thresholds are asked for: a model of linear layers as some arm trained it, on 2
    ranks; ``m`` micro-batches where it is split by layer."""

    arm: str
    model: str
    sizes: list[int]
    batch: int
    m: int

    @property
    def layers(self) -> int:
        """Even, so that all of them pair."""
        return max(2, (len(self.sizes) - 1) // 2 * 2)


def calibrations(run: Run) -> list[Calibration]:
    return [found for b in spent.shown(run) if (found := calibration.calibrate(run, b))]


def question(run: Run, found: Calibration) -> Question | None:
    """The deepest of the models."""
    best: Question | None = None
    for base, members in arms.families(run).items():
        if base not in found.rates or base is None:
            continue
        sizes, samples = calibration.chain(run, base), calibration.batch(run, base, found.backend)
        piped = [a for a in members if arms.by_layer(run, a)]
        counts = [arms.micro_batches(run, a) for a in piped]
        m = max(set(counts), key=lambda x: (counts.count(x), -x)) if counts else 4
        if sizes and samples and (best is None or len(sizes) > len(best.sizes)):
            best = Question(base, arms.model(run, base), sizes, round(samples), m)
    return best


def seconds(
    way: str, sizes: Sequence[int], asked: Question, found: Calibration, rate: float = 0.0
) -> float | None:
    """Of an update; ``rate``: bytes per second of the link, in place of the measured one."""
    if way == WHOLE:
        return calibration.operations(list(sizes), asked.batch) / found.rate
    fitted = found.reduces if way == INSIDE else found.messages
    if fitted is None:
        return None
    link = Link(fitted.link.alpha_s, 1 / rate) if rate else fitted.link
    if way == INSIDE:
        return tensor_parallel_step(sizes, asked.batch, 2, found.rate, link, whole=False)
    return vertical_step(sizes, asked.batch, asked.m, found.rate, link)


def width_from(first: str, second: str, asked: Question, found: Calibration) -> int | None:
    """The width of all layers from which on the first way is faster; 0: always, None: never up to
    a million, or unknown."""

    def told(way: str, d: int) -> float | None:
        return seconds(way, [d] * (asked.layers + 1), asked, found)

    return _from(first, second, WIDEST, told)


def bandwidth_from(first: str, second: str, asked: Question, found: Calibration) -> int | None:
    """The same of the link's bytes per second, with the asked model as it is and α as measured."""

    def told(way: str, rate: int) -> float | None:
        return seconds(way, asked.sizes, asked, found, rate)

    return _from(first, second, FASTEST, told)


def _from(
    first: str, second: str, most: int, told: Callable[[str, int], float | None]
) -> int | None:
    if told(first, 1) is None or told(second, 1) is None:
        return None
    last = crossovers(first, second, 1, most, lambda way, x: told(way, x) or 0.0)[-1]
    if last.winner != first:
        return None
    return 0 if last.first == 1 else last.first


# --- shown ----------------------------------------------------------------------------------------


def pays_cards(run: Run, words: Words) -> list[Card]:
    found = calibrations(run)
    if not found:
        return []
    used = list(dict.fromkeys(base for c in found for base in c.rates))
    return [
        Card(
            name=words("splits.pays.name"),
            arms=used,
            formulas=FORMULAS,
            explanation=words("splits.pays.does"),
            source=SOURCE,
        )
    ]


def constants_table(run: Run, words: Words) -> Table | None:
    """F, and α and 1 / β of messages and of all-reduce, on each backend."""
    rows = []
    for c in calibrations(run):
        cells = [Cell(c.backend), number(numbers.quantity(c.rate / 1e9))]
        for fitted in (c.messages, c.reduces):
            if fitted is None:
                cells += [number(numbers.NONE)] * 3
                continue
            link = fitted.link
            beta = link.beta_s_per_byte
            cells += [
                number(numbers.quantity(1e6 * link.alpha_s)),
                number(numbers.quantity(1 / beta / 1e9) if beta else numbers.NONE),
                number(numbers.percent(fitted.median_error).removesuffix(" %")),
            ]
        rows.append(cells)
    if not rows:
        return None
    head = heads(
        words,
        *("backend", "flops:gflops", "alpha_message:microseconds"),
        *("rate_message:gb_per_second", "error_message:percent", "alpha_reduce:microseconds"),
        *("rate_reduce:gb_per_second", "error_reduce:percent"),
    )
    return Table("constants", words("table.constants"), head, rows)


def prediction_table(run: Run, words: Words) -> Table | None:
    rows = [
        [
            Cell(p.arm, "code"),
            Cell(p.backend),
            Cell(arms.model(run, p.arm), "code"),
            Cell(arms.told(run, p.arm, words)),
            number(numbers.quantity(1e3 * p.predicted)),
            number(numbers.quantity(1e3 * p.measured)),
            number(numbers.factor(p.ratio)),
        ]
        for c in calibrations(run)
        for p in calibration.predictions(run, c)
    ]
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "model", "split_how", "predicted:milliseconds"),
        *("measured:milliseconds", "predicted_measured:relative"),
    )
    return Table("pays", words("table.pays"), head, rows)


def pays_figures(run: Run, words: Words) -> Iterator[Figure]:
    """Time against that of the whole model over the width of all layers, a panel for each
    backend."""
    told = [(c, asked) for c in calibrations(run) if (asked := question(run, c)) is not None]
    told = [(c, asked) for c, asked in told if c.messages or c.reduces]
    if not told:
        return
    widths = [round(2 ** (k / 4)) for k in range(20, 57)]  # 32 … 16384
    width = style.WIDTH * (0.62 if len(told) == 1 else 1.0)
    with style.canvas(width, 3.4) as made:
        grid = made.subplots(1, len(told), sharey=True, squeeze=False)[0]
        for axes, (c, asked) in zip(grid, told, strict=True):
            axes.axhline(1, color="#555555", linewidth=0.9, linestyle=(0, (4, 3)))
            for way, color in COLORS.items():
                y = [_relative(way, d, asked, c) for d in widths]
                if None not in y:
                    axes.plot(widths, y, color=color, linewidth=1.6,
                              label=words(f"splits.way.{way}"))  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks([2**k for k in range(5, 15, 2)], [str(2**k) for k in range(5, 15, 2)])
            low, high = axes.get_ylim()
            marks = [2.0**k for k in range(-1, 11) if low < 2.0**k < high]
            axes.set_yticks(marks, [f"{m:g}" for m in marks])
            axes.minorticks_off()
            axes.set_title(c.backend)
            axes.set_xlabel(words("axis.width"))
        grid[0].set_ylabel(words("axis.against_whole"))
        handles, labels = grid[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside upper left", ncols=3)
        text = style.svg(made, "pays")
    asked = told[0][1]
    caption = words("splits.figure.pays", layers=asked.layers, batch=asked.batch, m=asked.m)
    yield Figure("pays", text, caption, words("splits.alt.pays"), width)


def _relative(way: str, d: int, asked: Question, found: Calibration) -> float | None:
    sizes = [d] * (asked.layers + 1)
    mine, whole = seconds(way, sizes, asked, found), seconds(WHOLE, sizes, asked, found)
    return None if mine is None or not whole else mine / whole
