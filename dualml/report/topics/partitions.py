"""What every partition of the run deals: labels on ranks, coverage, overlap, skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import columns
from dualml.report.deals import Deal, Statement, deals, same_samples
from dualml.report.figure import Axis, Cells, Figure, Panel
from dualml.report.listing import several
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

COLUMNS, MOST_PANELS = 3, 18
MOST_LETTERS = 42  # above a panel
ROW = 21  # pixels, the height of a rank
LEAST_ROWS, MOST_HEIGHT = 2, 300
MOST_ARMS = 3  # named beneath a partition


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = deals(run)
    yield from _figures(words, every)
    if every:
        spec = (
            *("`partition`", "ranks:count", "part_sizes:samples", "coverage:percent"),
            *("missed:samples", "repeated:samples", "shared:samples", "emd:1", "js:bits"),
            *("`fingerprint`", "same_samples"),
        )
        rows = [_row(run, words, deal) for deal in every]
        yield Table("partitions", words("table.partitions"), columns(words, *spec), rows)


def _figures(words: Words, every: Sequence[Deal]) -> Iterator[Figure]:
    """A panel for each distinct partition, all on one scale."""
    shown = [deal for deal in every if deal.first.get("histogram")]
    top = max((max(map(max, deal.first["histogram"])) for deal in shown), default=0)
    sized = len({deal.ranks for deal in shown}) > 1
    for start in range(0, len(shown), MOST_PANELS):
        part = shown[start : start + MOST_PANELS]
        name = "partitions" + (f"-{start // MOST_PANELS + 1}" if start else "")
        yield _figure(words, name, part, top, sized)


def _figure(words: Words, name: str, shown: Sequence[Deal], top: int, sized: bool) -> Figure:
    across = min(COLUMNS, len(shown))
    lines = [shown[k : k + across] for k in range(0, len(shown), across)]
    heights = [
        min(MOST_HEIGHT, ROW * max(LEAST_ROWS, *(deal.ranks for deal in line))) for line in lines
    ]
    texts = [f"{deal.text} (n = {deal.ranks})" for deal in shown]
    empty = [text for deal in shown if (text := _empty([deal.first], words))]
    alt = words("alt.partitions", seed=shown[0].seed, values=", ".join(texts))
    return Figure(
        name,
        words("figure.partitions", seed=shown[0].seed),
        words.sentences([alt, *empty]),
        [
            _panel(words, deal, top, sized, height)
            for line, height in zip(lines, heights, strict=True)
            for deal in line
        ],
        columns=across,
        width=880 if across > 1 else 528,
    )


def _panel(words: Words, deal: Deal, top: int, sized: bool, height: float) -> Panel:
    table = Cells(deal.first["histogram"], top, words("axis.samples"), words("value.no_samples"))
    return Panel(
        [table],
        Axis(words("axis.label"), names=[str(label) for label in deal.first["labels"]]),
        Axis(words("axis.rank"), names=[str(rank) for rank in range(deal.ranks)]),
        _title(words, deal, sized),
        height=height,
    )


def _title(words: Words, deal: Deal, sized: bool) -> str:
    """As much as there is room for; with the number of ranks where they differ."""
    room = MOST_LETTERS - (8 if sized else 0)
    text = deal.text if len(deal.text) <= room else f"{deal.text[: room - 1]}…"
    return words("figure.panel", backend=text, n=deal.ranks) if sized else text


def _empty(statements: Sequence[Statement], words: Words) -> str:
    """Ranks without samples, in words."""
    empty = sorted({r for s in statements for r, size in enumerate(s["sizes"]) if not size})
    if not empty:
        return ""
    return words.plural("value.empty_ranks", len(empty), ranks=words.join([str(r) for r in empty]))


def _row(run: Run, words: Words, deal: Deal) -> list[Cell | str]:
    sizes = [size for s in deal.all for size in s["sizes"]]
    low, high = numbers.quantity(min(sizes)), numbers.quantity(max(sizes))
    missed, whole = deal.mean("missed"), deal.mean("samples")
    covered = 100 * (1 - missed / whole) if missed is not None and whole else None
    return [
        Cell(deal.text, note=", ".join(several(deal.arms, words, MOST_ARMS))),
        str(deal.ranks),
        Cell(low if low == high else f"{low} – {high}", note=_empty(deal.all, words)),
        numbers.NONE if covered is None else f"{covered:.1f}",
        *(numbers.quantity(deal.mean(key)) for key in ("missed", "repeated", "shared")),
        _skew(deal, "emd"),
        _skew(deal, "js"),
        str(deal.first.get("sha256"))[:8],
        _same(run, words, deal),
    ]


def _skew(deal: Deal, what: str) -> Cell:
    """Mean over the ranks, beneath it the largest."""
    mean, most = deal.skew(what)
    if mean is None or most is None:
        return Cell(numbers.NONE)
    return Cell(f"{mean:.3f}", note=f"≤ {most:.3f}")


def _same(run: Run, words: Words, deal: Deal) -> Cell:
    alike, compared = same_samples(run, deal.arms)
    if not compared:
        return Cell(numbers.NONE)
    note = words("value.of", n=alike, of=compared)
    if alike == compared:
        return Cell(f"✓ {words('value.yes')}", "good", note)
    return Cell(f"≠ {words('value.no')}", "bad", note)


TOPIC = Topic("partitions", 500, evidence)
