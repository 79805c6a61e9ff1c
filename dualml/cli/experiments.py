"""``dualml list`` and ``dualml show``."""

from __future__ import annotations

from typing import Annotated

import typer


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

    table = Table(title=escape(f"{experiment.name}: {experiment.title.get('en', '')}"))
    for column in ("group", "arm", "optimizer", "schedule", "batch", "samples", "length"):
        table.add_column(column, overflow="fold")
    for name, arm in experiment.arms.items():
        rule = {k: v for k, v in arm.optimizer.items() if k != "name"}
        length = f"{arm.updates} updates" if arm.updates else f"{arm.epochs:g} epochs"
        told = ", ".join(f"{k} = {v}" for k, v in rule.items())
        table.add_row(
            escape(arm.group),
            name,
            escape(f"{arm.optimizer['name']}({told})"),
            arm.schedule.get("kind", ""),
            str(arm.batch_size or "full"),
            str(arm.samples or "all"),
            length,
        )
    console = Console()
    console.print(table)
    console.print(
        f"model {experiment.model}, loss {experiment.loss}, data {experiment.data.name}, "
        f"seeds {experiment.seeds}",
        highlight=False,
        markup=False,
    )
