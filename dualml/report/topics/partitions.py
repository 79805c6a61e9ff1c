"""Every partition of the run: labels per rank, coverage, overlap, skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Cell
from dualml.report.columns import Columns, tabulate
from dualml.report.figure import Axis, Figure, Heatmap, Panel
from dualml.report.presentation import build_figure, shorten_list
from dualml.report.run_partitions import EpochStats, PartitionSummary, list_partitions, same_samples
from dualml.report.topics import ReportSection

COLUMNS, MAX_PANELS = 3, 18
MAX_TITLE_CHARS = 42  # in the title of a panel
ROW = 21  # pixels, the height of a rank
MIN_ROWS, MAX_HEIGHT_PIXELS = 2, 300
MAX_NAMED_ARMS = 3  # named below a partition


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield figures of labels per rank, and the table of coverage, overlap and skew."""
    every = list_partitions(run)
    shown = [deal for deal in every if deal.first_epoch.get("histogram")]
    for start in range(0, len(shown), MAX_PANELS):
        suffix = f"-{start // MAX_PANELS + 1}" if start else ""
        yield _figure(words, suffix, shown[start : start + MAX_PANELS], shown)
    read: Columns[PartitionSummary] = {
        "`partition`": lambda deal: Cell(
            deal.text, note=", ".join(shorten_list(deal.arms, words, MAX_NAMED_ARMS))
        ),
        "ranks:count": lambda deal: deal.ranks,
        "part_sizes:samples": lambda deal: _sizes(deal, words),
        "coverage:percent": _coverage,
        ("missed:samples", "repeated:samples", "shared:samples"): lambda deal: map(
            deal.mean, ("missed", "repeated", "shared")
        ),
        "emd:1": lambda deal: _skew(*deal.skew("emd")),
        "js:bits": lambda deal: _skew(*deal.skew("js")),
        "`fingerprint`": lambda deal: str(deal.first_epoch.get("sha256"))[:8],
        "same_samples": lambda deal: _same_samples(run, words, deal),
    }
    yield from tabulate(words, "partitions", every, read)


def _figure(
    words: Messages,
    suffix: str,
    shown: Sequence[PartitionSummary],
    every: Sequence[PartitionSummary],
) -> Figure:
    """Return a figure with a panel per partition in ``shown``: samples by rank and label, on the
    colour scale of all partitions in ``every``."""
    top = max(max(map(max, deal.first_epoch["histogram"])) for deal in every)
    sized = len({deal.ranks for deal in every}) > 1
    across = min(COLUMNS, len(shown))
    panels = []
    for k, deal in enumerate(shown):
        line = shown[k - k % across :][:across]
        height = min(MAX_HEIGHT_PIXELS, ROW * max(MIN_ROWS, *(d.ranks for d in line)))
        cells = Heatmap(
            deal.first_epoch["histogram"], top, words("axis.samples"), words("value.no_samples")
        )
        x = Axis(words("axis.label"), names=[str(label) for label in deal.first_epoch["labels"]])
        y = Axis(words("axis.rank"), names=[str(rank) for rank in range(deal.ranks)])
        panels.append(Panel([cells], x, y, _title(words, deal, sized), height=height))
    empty = [text for deal in shown if (text := _empty([deal.first_epoch], words))]
    texts = [f"{deal.text} (n = {deal.ranks})" for deal in shown]
    drawn = build_figure(
        words,
        "partitions",
        panels,
        [],
        {"seed": shown[0].seed, "values": ", ".join(texts)},
        name=f"partitions{suffix}",
        columns=across,
        width=880 if across > 1 else 528,
    )
    return replace(drawn, alt=words.join_sentences([drawn.alt, *empty]))


def _title(words: Messages, deal: PartitionSummary, sized: bool) -> str:
    """Return the partition as text, truncated, with the number of ranks if partitions differ in
    it."""
    room = MAX_TITLE_CHARS - (8 if sized else 0)
    text = deal.text if len(deal.text) <= room else f"{deal.text[: room - 1]}…"
    return words("figure.panel", backend=text, n=deal.ranks) if sized else text


def _empty(epoch_stats: Sequence[EpochStats], words: Messages) -> str:
    """Return the ranks without samples as text, empty if every rank has some."""
    empty = sorted({r for s in epoch_stats for r, size in enumerate(s["sizes"]) if not size})
    return words.plural("value.empty_ranks", len(empty), ranks=map(str, empty)) if empty else ""


def _sizes(deal: PartitionSummary, words: Messages) -> Cell:
    """Return the cell of the smallest and the largest number of samples of a rank."""
    sizes = [size for s in deal.all_epochs for size in s["sizes"]]
    low, high = numbers.quantity(min(sizes)), numbers.quantity(max(sizes))
    return Cell(low if low == high else f"{low} – {high}", note=_empty(deal.all_epochs, words))


def _coverage(deal: PartitionSummary) -> float | None:
    """Return the share of samples that an epoch takes, None if unknown."""
    missed, whole = deal.mean("missed"), deal.mean("samples")
    return 1 - missed / whole if missed is not None and whole else None


def _same_samples(run: RunData, words: Messages, deal: PartitionSummary) -> Cell | None:
    """Return the cell that says whether backends drew the same samples; None if not compared."""
    alike, compared = same_samples(run, deal.arms)
    if not compared:
        return None
    note = words("value.of", n=alike, of=compared)
    if alike == compared:
        return Cell(f"✓ {words('value.yes')}", "good", note)
    return Cell(f"≠ {words('value.no')}", "bad", note)


def _skew(mean: float | None, most: float | None) -> Cell | None:
    """Return the cell of the mean over the ranks, with the maximum below; None if the mean is."""
    return None if mean is None else Cell(f"{mean:.3f}", note=f"≤ {most:.3f}")


TOPIC = ReportSection("partitions", 500, evidence)
