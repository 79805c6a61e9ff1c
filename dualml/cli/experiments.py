"""``dualml list`` and ``dualml show``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dualml.experiment.schema import Arm

WIDE = 120  # columns a terminal needs for a table of arms
LONG = ("optimizer", "partition", "aggregation", "slow", "split")


def list_(
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    lang: Annotated[str, typer.Option(help="en or zh")] = "en",
) -> None:
    """The experiments that come with dualml."""
    from dualml.cli.output import check_lang, print_json
    from dualml.experiment.find import names, read

    check_lang(lang)
    tables = {name: read(path) for name, path in names().items()}
    if json:
        print_json(
            [
                {"name": name, "title": t.get("title", {}), "arms": list(t.get("arms", {}))}
                for name, t in tables.items()
            ]
        )
        return
    width = max((len(name) for name in tables), default=0)
    for name, table in tables.items():
        typer.echo(f"{name:<{width}}  {table.get('title', {}).get(lang, '')}")


def show(
    lab: Annotated[str, typer.Argument(help="A name (lab1) or a TOML file.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With the quick settings.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """One experiment fully resolved, with all its arms."""
    from dualml.cli.output import print_json
    from dualml.experiment.load import load

    experiment = load(lab, overrides=set_ or [], arms=["all"], quick=quick)
    if json:
        print_json(experiment.describe())
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    title = f"{experiment.name}: {experiment.title.get('en', '')}"
    rows = {name: columns(arm) for name, arm in experiment.arms.items()}
    heads = list(columns(next(iter(experiment.arms.values()))))
    same = {head: {row[head] for row in rows.values()} for head in heads}
    common = {head: min(found) for head, found in same.items() if len(found) == 1 < len(rows)}
    shown = [head for head in heads if head not in common]
    console = Console(highlight=False)
    if console.width >= WIDE:
        table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False)
        for head in ("arm", *shown):
            table.add_column(head, overflow="fold", no_wrap=head not in LONG)
        for name, row in rows.items():
            table.add_row(name, *(escape(row[head]) for head in shown))
        console.print(table)
    else:
        console.print(title, markup=False)
        for name, row in rows.items():
            told = [f"{head} {row[head]}" for head in shown if row[head]]
            console.print(f"{name}: {', '.join(told)}", markup=False)
    console.print("settings left out are the defaults; --json has all of them")
    if said := [f"{column} {value}" for column, value in common.items() if value]:
        console.print(f"all arms: {', '.join(said)}", markup=False)
    console.print(
        f"model {experiment.model}, loss {experiment.loss}, data {experiment.data.name}, "
        f"seeds {experiment.seeds}",
        highlight=False,
        markup=False,
    )


def columns(arm: Arm) -> dict[str, str]:
    """What the table says of an arm; empty where it does what goes without saying."""
    length = arm.updates or f"{arm.epochs:g}"
    unit = "update" if arm.updates else "epoch"
    combined = arm.aggregation.model_dump(exclude_defaults=True)
    trains = {
        "optimizer": chosen(arm.rule),
        "schedule": str(arm.schedule.get("kind", "")),
        "batch": str(arm.batch_size or "full"),
        "samples": str(arm.samples or "all"),
        "length": f"{length} {unit}{'' if length in (1, '1') else 's'}",
        "partition": chosen(arm.plan_partition),
        "aggregation": called(combined.pop("strategy", arm.aggregation.strategy), combined)
        if (arm.world_size > 1 and arm.split is None) or combined
        else "",
        "model": arm.model,
        "split": "" if arm.split is None else settings(arm.split.describe()),
        "slow": "" if arm.slow is None else settings(arm.slow.model_dump(exclude_defaults=True)),
    }
    if arm.kind != "train":
        trains = dict.fromkeys(trains, "") | {"aggregation": ", ".join(arm.strategies)}
    return {"group": arm.group, "ranks": str(arm.world_size), **trains}


def chosen(rule: Any) -> str:
    """A rule and what is not as it would be by itself: ``SGD(lr=0.1)`` → ``sgd(lr=0.1)``."""
    if rule is None:
        return ""
    from dataclasses import fields

    told = {f.name: getattr(rule, f.name) for f in fields(rule)}
    return called(
        rule.name, {f.name: told[f.name] for f in fields(rule) if told[f.name] != f.default}
    )


def called(name: str, values: Mapping[str, Any]) -> str:
    return f"{name}({settings(values)})" if values else name


def settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
