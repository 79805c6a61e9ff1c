"""`dualml partition`: deal a dataset to ranks, look at the deal, keep it in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from dualml.partition import Index, Partition, Statement

MOST_ROWS = 40  # of a table; --json has all
WORDS = {
    "en": {
        "title": "{rule}: {n:,} samples of {data} to {ranks:,} ranks, seed {seed}, epoch {epoch}",
        "head": "rank|samples|EMD|JS",
        "all": "all",
        "more": "… and {n:,} more ranks (--json has them all)",
        "covering": "Every sample is with some rank.",
        "missed": "{n:,} of {of:,} samples are with no rank ({share:.1%}).",
        "disjoint": "No sample is dealt twice.",
        "repeated": "{n:,} entries repeat a sample that their rank has already.",
        "shared": "{n:,} samples are with several ranks.",
        "empty": "Ranks without samples: {ranks}.",
        "keeps": "Each rank keeps these samples in every epoch.",
        "redeals": "Every epoch deals anew.",
        "lists_only": "! The file holds the lists alone; the noise of {rule} is added by the rule.",
        "needed": "{key} (needed)",
        "settings": "settings: {settings}",
    },
    "zh": {
        "title": "{rule}：{data} 的 {n:,} 个样本分给 {ranks:,} 个 rank，种子 {seed}，第 {epoch} 轮",
        "head": "rank|样本数|EMD|JS",
        "all": "全部",
        "more": "……另有 {n:,} 个 rank（--json 给出全部）",
        "covering": "每个样本都分给了某个 rank。",
        "missed": "{of:,} 个样本中有 {n:,} 个没有分给任何 rank（{share:.1%}）。",
        "disjoint": "没有样本被重复分配。",
        "repeated": "有 {n:,} 项与同一 rank 已有的样本重复。",
        "shared": "有 {n:,} 个样本同时属于多个 rank。",
        "empty": "没有样本的 rank：{ranks}。",
        "keeps": "每个 rank 在各轮中保持同一批样本。",
        "redeals": "每一轮都重新分配。",
        "lists_only": "! 文件只含列表；{rule} 的噪声由规则本身添加。",
        "needed": "{key}（必填）",
        "settings": "参数：{settings}",
    },
}
#: First lines of the rules' docstrings in Chinese.
CHINESE = {
    "contiguous": "rank r 按数据集文件的次序取得 n 个几乎等长的块中的第 r 块。",
    "round_robin": "rank r 取得第 r、r + n、r + 2n、……个样本。",
    "random_partition": "把全部样本随机排列，再切成 n 个几乎等长的部分，每个 rank 一份。",
    "random_sampling": "每一轮中，各 rank 互不商量，各自从全部 N 个样本中抽取 N/n 个。",
    "distributed_sampler": "由种子 + 轮次得到全部样本的一个排列，像发牌一样依次分发。",
    "fractions": "随机排列，再按给定的比例切开，例如全部样本的 0.7、0.2 与 0.1。",
    "label_shards": "按标签排序，切成 n × shards 个几乎等长的片，每个 rank 分得 shards 片。",
    "label_classes": "每个 rank 只看到 classes 种标签，看不到其他标签的任何样本。",
    "dirichlet_labels": "对每种标签，按 Dir(α, …, α) 抽取的比例把它的样本分给各 rank。",
    "dirichlet_sizes": "随机排列，再按 Dir(α, …, α) 抽取一次的比例切开。",
    "power_law_sizes": "随机排列，再切成大小正比于 (r + 1)^-exponent 的部分：rank 0 最多。",
    "feature_noise": "随机划分；rank r 的样本加上标准差为 σ (r + 1) / n 的高斯噪声。",
    "bootstrap": "每个 rank 有放回地抽取一次样本，并在各轮中一直使用。",
    "file": "由 --out 写入的列表：每个 rank 一个，只适用于当时的那些样本。",
}


def partition(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The rule; without it, all are listed.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the rule; repeatable."),
    ] = None,
    world_size: Annotated[int, typer.Option(metavar="N", help="How many ranks.")] = 4,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Dataset; default mnist.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Which epoch, from 0.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Keep the deal in a new file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    lang: Annotated[str, typer.Option(metavar="en|zh", help="Language of the table.")] = "en",
) -> None:
    """Deal the training samples of a dataset to ranks and say what every rank gets."""
    from dualml.cli.output import check_lang, print_json
    from dualml.data import load
    from dualml.errors import UserError
    from dualml.experiment.load import override
    from dualml.partition import partition_from, prove
    from dualml.partition.from_file import save

    check_lang(lang)
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
            typer.echo(WORDS[lang]["lists_only"].format(rule=rule.name))
        typer.echo(f"→ {out}")


def list_rules(as_json: bool, lang: str) -> None:
    """Every rule: what it does, and its settings with their defaults."""
    from dataclasses import MISSING, fields

    from dualml.cli.output import print_json
    from dualml.partition import PARTITIONS

    rows, words = [], WORDS[lang]
    for name, rule in PARTITIONS.items():
        english = (rule.__doc__ or "").splitlines()[0].replace("`", "")
        what = CHINESE[name] if lang == "zh" else english
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

    words, console = WORDS[lang], Console(highlight=False)
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
