"""`dualml partition`: partition a dataset among ranks, inspect the result, save it to a file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.words import section_messages
from dualml.interface.cli import complete
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import DATA, SET, OutputOptions
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Cell, Cells, Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.parallel.partition import Index, Partition, PartitionStats

MAX_ROWS = 40  # of a table; --json prints all


@dataclass(frozen=True)
class PartitionOptions:
    """The samples, the ranks, and the seed of a partition."""

    set_: Annotated[list[str] | None, SET] = None
    world_size: Annotated[int, typer.Option(metavar="N")] = 4
    data: Annotated[str | None, DATA] = None
    seed: int = 0
    epoch: Annotated[int, typer.Option(min=0)] = 0


@with_option_groups
def partition(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", autocompletion=complete.partitions)
    ] = None,
    *,
    options: PartitionOptions,
    out: Annotated[Path | None, typer.Option(metavar="FILE.npz")] = None,
    output: OutputOptions,
) -> None:
    """Partition the training samples of a dataset among ranks, and show the share of every rank.
    Without ``name`` list the partition rules."""
    from dualml.experiment.data import TEXTS, load
    from dualml.experiment.overrides import apply_override
    from dualml.parallel.partition import partition_from, verify_partition
    from dualml.parallel.partition.from_file import save_partition

    lang, data = output.lang, options.data
    if name is None:
        if options.set_ or out or data:
            raise UserError("name the partition; dualml partition lists them")
        list_rules(output.json, lang)
        return
    settings: dict[str, Any] = {}
    for text in options.set_ or []:
        apply_override(settings, text)
    if "name" in settings:
        raise UserError(f"partition {name!r} has no setting 'name'")
    rule = partition_from({"name": name, **settings})
    if out is not None and out.exists():
        raise UserError(f"{out} is there already; choose another --out")
    labels = data in TEXTS and bool(TEXTS[data].classes)
    samples = load(data or "mnist", explicit=data is not None, labels=labels)
    if samples.kind == "text":
        raise UserError(f"{samples.name} is a text without labels to show; name images, as mnist")
    ranks, seed, epoch = options.world_size, options.seed, options.epoch
    parts = rule.partition(samples.train_y, ranks, seed, epoch)
    statement = verify_partition(rule, parts, samples.train_y)
    if out is not None:
        save_partition(out, parts, samples.train_y, samples.name, rule, seed, epoch)
    notice = samples.notice[lang] if samples.notice else None
    about = {"data": samples.name, "seed": seed, "epoch": epoch}
    if output.json:
        facts = {"partition": rule.describe(), **about, "notice": notice, "ranks": ranks}
        kept = None if out is None else str(out)
        facts |= {**statement.describe(), "empty": statement.empty, "out": kept}
        print_json(facts, "partition")
        return
    show_partition(rule, statement, samples.train_y, about, notice, lang)
    if out is not None:
        if rule.changes_features:
            print_text(
                section_messages(lang, "partition.shown")["lists_only"].format(rule=rule.name)
            )
        print_text(f"→ {out}")


def list_rules(as_json: bool, lang: str) -> None:
    """Print every partition rule with its description, and its settings with their defaults."""
    from dataclasses import MISSING, fields

    from dualml.parallel.partition import PARTITIONS

    words, described = (
        section_messages(lang, "partition.shown"),
        section_messages(lang, "partition.rule"),
    )
    rows: list[dict[str, Any]] = []
    for name, rule in PARTITIONS.items():
        english = (rule.__doc__ or "").splitlines()[0].replace("`", "")
        known = sorted(fields(rule), key=lambda field: field.name == "shuffle")  # it comes last
        settings = {f.name: None if f.default is MISSING else f.default for f in known}
        rows.append({"name": name, "what": described.get(name, english), "settings": settings})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        listed = ", ".join(
            words["needed"].format(key=key) if value is None else f"{key} = {json.dumps(value)}"
            for key, value in row["settings"].items()
        )
        print_text(f"{row['name']}\n  {row['what']}\n  {words['settings'].format(settings=listed)}")


def show_partition(
    rule: Partition,
    statement: PartitionStats,
    labels: Index,
    about: dict[str, Any],
    notice: str | None,
    lang: str,
) -> None:
    """Print the table of ranks, and the properties of the partition.

    Args:
        rule: that made the partition.
        statement: its statistics.
        labels: of the dataset's training samples.
        about: ``data``, ``seed`` and ``epoch``, for the title.
        notice: about the dataset; None if there is none.
        lang: language of the texts.
    """
    from rich.console import Console

    words, console = section_messages(lang, "partition.shown"), Console(highlight=False)
    if notice:
        print_text(f"! {notice}")
    settings = sorted(rule.describe().items(), key=lambda item: item[0] == "shuffle")
    listed = ", ".join(f"{k} = {json.dumps(v)}" for k, v in settings if k != "name")
    ranks, named = len(statement.sizes), f"{rule.name}({listed})"
    print_text(words["title"].format(rule=named, n=statement.samples, ranks=ranks, **about))
    print_text()
    terminal.show(histogram_table(statement, labels, words, console.width), console)
    if ranks > MAX_ROWS:
        print_text(words["more"].format(n=ranks - MAX_ROWS))
    print_text()
    print_text("\n".join(summary_sentences(rule, statement, words)))
    print_text(f"SHA-256 {statement.sha256}")


def histogram_table(
    statement: PartitionStats, labels: Index, words: dict[str, str], width: int
) -> Table:
    """Make a table with one row for each of the first `MAX_ROWS` ranks, and one for the dataset:
    samples, label counts, and the distance of the rank's labels from the dataset's by earth mover's
    distance (EMD) and Jensen–Shannon divergence (JS).

    Label counts are shaded cells; where ``width`` columns are too few, bars in one cell.
    """
    import numpy as np

    known, whole = np.unique(labels, return_counts=True)
    wide = 5 * len(known) + 26 <= width
    rank, samples, emd, js = words["head"].split("|")
    each = map(str, known) if wide else [f"{known[0]} … {known[-1]}"]
    columns = [Column(head, head, show="number") for head in (rank, samples, *each, emd, js)]
    s = statement
    rows: list[Cells] = [
        [
            str(number),
            f"{size:,}",
            *count_cells(counts, wide),
            *("–" if d is None else f"{d:.3f}" for d in distances),
        ]
        for number, (size, counts, *distances) in enumerate(
            zip(s.sizes, s.histogram or [], s.emd or [], s.js or [], strict=True)
        )
    ]
    everything: Cells = [words["all"], f"{s.samples:,}", *count_cells(whole.tolist(), wide), "", ""]
    return Table("deal", "", columns, [*rows[:MAX_ROWS], everything])


def count_cells(counts: list[int], wide: bool) -> list[Cell]:
    """Return a row's label counts, shaded relative to the largest of the row, with a dot for 0;
    unless ``wide``, as bars in one cell."""

    most = max(max(counts), 1)
    if not wide:
        return [Cell("".join("·▁▂▃▄▅▆▇█"[math.ceil(8 * count / most)] for count in counts))]
    return [
        Cell(compact_number(count), shade=0.2 + 0.8 * count / most) if count else Cell("·")
        for count in counts
    ]


def compact_number(count: int) -> str:
    """Format a count in at most four characters: 987, 6.7k, 23k, 1.2M."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if count >= 0.9995 * size:
            share = count / size
            return f"{share:.1f}{unit}" if share < 9.95 else f"{share:.0f}{unit}"
    return str(count)


def summary_sentences(
    rule: Partition, statement: PartitionStats, words: dict[str, str]
) -> list[str]:
    """Return a sentence each, where it applies, on coverage, disjoint parts, repeated samples,
    empty ranks, and the next epoch."""
    s, share = statement, statement.missed / statement.samples
    missed = words["missed"].format(n=s.missed, of=s.samples, share=share)
    holds = [
        (words["covering"] if s.covering else missed, True),
        (words["disjoint"], s.disjoint),
        (words["repeated"].format(n=s.repeated), s.repeated),
        (words["shared"].format(n=s.shared), s.shared),
        (words["empty"].format(ranks=", ".join(map(str, s.empty))), s.empty),
        (words["redeals" if rule.repartitions_each_epoch else "keeps"], True),
    ]
    return [sentence for sentence, true in holds if true]
