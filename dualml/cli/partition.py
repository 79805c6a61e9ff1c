"""`dualml partition`: deal a dataset to ranks, look at the deal, keep it in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.cli.options import AsJson, Lang
from dualml.words import phrases

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dualml.partition import Index, Partition, Statement

MOST_ROWS = 40  # of a table; --json has all
#: First lines of the rules' docstrings in Chinese.


def partition(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    world_size: Annotated[int, typer.Option(metavar="N")] = 4,
    data: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    seed: int = 0,
    epoch: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE.npz")] = None,
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Deal the training samples of a dataset to ranks and say what every rank gets."""
    from dualml.cli.output import print_json
    from dualml.data import load
    from dualml.errors import UserError
    from dualml.experiment.load import override
    from dualml.partition import partition_from, prove
    from dualml.partition.from_file import save

    if name is None:
        if set_ or out or data:
            raise UserError("name the partition; dualml partition lists them")
        list_rules(as_json, lang)
        return
    settings: dict[str, Any] = {}
    for text in set_ or []:
        override(settings, text)
    if "name" in settings:
        raise UserError(f"partition {name!r} has no setting 'name'")
    rule = partition_from({"name": name, **settings})
    if out is not None and out.exists():
        raise UserError(f"{out} is there already; choose another --out")
    samples = load(data or "mnist", explicit=data is not None)
    if samples.kind == "text":
        raise UserError(f"{samples.name} is a text without labels to show; name images, as mnist")
    parts = rule.deal(samples.train_y, world_size, seed, epoch)
    told = prove(rule, parts, samples.train_y)
    if out is not None:
        save(out, parts, samples.train_y, samples.name, rule, seed, epoch)
    notice = samples.notice[lang] if samples.notice else None
    about = {"data": samples.name, "seed": seed, "epoch": epoch}
    if as_json:
        facts = {"partition": rule.describe(), **about, "notice": notice, "ranks": world_size}
        kept = None if out is None else str(out)
        print_json({**facts, **told.describe(), "empty": told.empty, "out": kept})
        return
    show(rule, told, samples.train_y, about, notice, lang)
    if out is not None:
        if rule.changes_features:
            typer.echo(phrases(lang, "partition.shown")["lists_only"].format(rule=rule.name))
        typer.echo(f"→ {out}")


def list_rules(as_json: bool, lang: str) -> None:
    """Every rule: what it does, and its settings with their defaults."""
    from dataclasses import MISSING, fields

    from dualml.cli.output import print_json
    from dualml.partition import PARTITIONS

    rows, words = [], phrases(lang, "partition.shown")
    described = phrases(lang, "partition.rule")
    for name, rule in PARTITIONS.items():
        english = (rule.__doc__ or "").splitlines()[0].replace("`", "")
        what = described.get(name, english)
        known = sorted(fields(rule), key=lambda field: field.name == "shuffle")  # it comes last
        settings = {f.name: None if f.default is MISSING else f.default for f in known}
        rows.append({"name": name, "what": what, "settings": settings})
        told = ", ".join(
            words["needed"].format(key=key) if value is None else f"{key} = {json.dumps(value)}"
            for key, value in settings.items()
        )
        if not as_json:
            typer.echo(f"{name}\n  {what}\n  {words['settings'].format(settings=told)}")
    if as_json:
        print_json(rows)


def show(
    rule: Partition,
    told: Statement,
    labels: Index,
    about: dict[str, Any],
    notice: str | None,
    lang: str,
) -> None:
    """The table of the ranks, and below it what holds for all of them."""
    from rich.console import Console

    words, console = phrases(lang, "partition.shown"), Console(highlight=False)
    if notice:
        console.print("!", notice, markup=False, soft_wrap=True)
    settings = sorted(rule.describe().items(), key=lambda item: item[0] == "shuffle")
    listed = ", ".join(f"{k} = {json.dumps(v)}" for k, v in settings if k != "name")
    ranks, named = len(told.sizes), f"{rule.name}({listed})"
    title = words["title"].format(rule=named, n=told.samples, ranks=ranks, **about)
    console.print(title, markup=False, soft_wrap=True)
    console.print()
    console.print(histogram(told, labels, words, console.width))
    if ranks > MOST_ROWS:
        console.print(words["more"].format(n=ranks - MOST_ROWS), markup=False)
    console.print()
    for sentence in sentences(rule, told, words):
        console.print(sentence, markup=False, soft_wrap=True)
    console.print(f"SHA-256 {told.sha256}", markup=False, soft_wrap=True)


def histogram(told: Statement, labels: Index, words: dict[str, str], width: int) -> Table:
    """A row for each rank and one for the dataset: samples, how many of each label, EMD and JS.

    The numbers of labels are shaded; on a narrow terminal bars stand for them.
    """
    import numpy as np
    from rich.table import Table

    known, whole = np.unique(labels, return_counts=True)
    wide = 5 * len(known) + 26 <= width
    rank, samples, emd, js = words["head"].split("|")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in (rank, samples, *(map(str, known) if wide else [f"{known[0]} … {known[-1]}"])):
        table.add_column(head, justify="right", no_wrap=True, min_width=4)
    for head in (emd, js):
        table.add_column(head, justify="right", no_wrap=True, min_width=5)
    rows = list(zip(told.sizes, told.histogram or [], told.emd or [], told.js or [], strict=True))
    for number, (size, counts, *distances) in enumerate(rows[:MOST_ROWS]):
        shown = ["–" if d is None else f"{d:.3f}" for d in distances]
        table.add_row(str(number), f"{size:,}", *cells(counts, wide), *shown)
    table.add_row(words["all"], f"{told.samples:,}", *cells(whole.tolist(), wide))
    return table


def cells(counts: list[int], wide: bool) -> list[Text]:
    """A row's numbers, the darker the nearer to its largest; or its bars in one cell."""
    from rich.text import Text

    most = max(max(counts), 1)
    if not wide:
        return [Text("".join("·▁▂▃▄▅▆▇█"[math.ceil(8 * count / most)] for count in counts))]

    def cell(count: int) -> Text:
        share = 0.2 + 0.8 * count / most
        shade = ",".join(f"{round(share * full)}" for full in (30, 100, 180))
        return Text(compact(count), f"white on rgb({shade})") if count else Text("·", "dim")

    return [cell(count) for count in counts]


def compact(count: int) -> str:
    """At most four letters: 987, 6.7k, 23k, 1.2M."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if count >= 0.9995 * size:
            share = count / size
            return f"{share:.1f}{unit}" if share < 9.95 else f"{share:.0f}{unit}"
    return str(count)


def sentences(rule: Partition, told: Statement, words: dict[str, str]) -> list[str]:
    """Coverage, what is dealt twice, who has nothing, and what the next epoch does."""
    share = told.missed / told.samples
    found = [
        words["covering"]
        if told.covering
        else words["missed"].format(n=told.missed, of=told.samples, share=share)
    ]
    if told.disjoint:
        found.append(words["disjoint"])
    if told.repeated:
        found.append(words["repeated"].format(n=told.repeated))
    if told.shared:
        found.append(words["shared"].format(n=told.shared))
    if told.empty:
        found.append(words["empty"].format(ranks=", ".join(map(str, told.empty))))
    return [*found, words["redeals" if rule.redeals else "keeps"]]
