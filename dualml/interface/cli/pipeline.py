"""`dualml simulate --pipeline`: show a schedule as rank × tick, its bubble and live activations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.words import section_messages
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from rich.text import Text

    from dualml.parallel.split.schedule import Action, Grid
    from dualml.planning.cost.pipeline_request import PipelineRequest

PANEL = "pipelines"
Seconds = Annotated[str | None, typer.Option(metavar="TIME", rich_help_panel=PANEL)]


@dataclass(frozen=True)
class PipelineOptions:
    """The schedule of a pipeline, and the seconds of its passes."""

    pipeline: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=PANEL)] = None
    grid: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=PANEL)] = None
    micro_batches: Annotated[int | None, typer.Option(metavar="M", rich_help_panel=PANEL)] = None
    chunks: Annotated[int | None, typer.Option(metavar="V", rich_help_panel=PANEL)] = None
    owners: Annotated[str | None, typer.Option(metavar="R,R,…", rich_help_panel=PANEL)] = None
    forward: Seconds = None
    backward: Seconds = None
    update: Seconds = None


#: Colours of the first, second, … stage of a rank, for forward (F) and backward (B).
COLOURS = {"F": ("white on blue", "black on cyan"), "B": ("black on yellow", "black on green")}
BLOCKS = 3  # maximum blocks of ticks, one below the other

#: Options that only pipelines have.
PIPELINE_OPTIONS = ("micro_batches", "chunks", "owners", "forward", "backward", "update")
#: Options that pipelines share with aggregations.
SHARED_OPTIONS = ("pipeline", "grid", "ranks", "size", "alpha", "bandwidth", "beta", "json", "lang")


def wants_pipeline(given: Mapping[str, Any], usual: Mapping[str, Parameter]) -> bool:
    """Return whether the options of `dualml simulate` ask for a pipeline; ``usual`` are the
    parameters of the command, with their defaults.

    Raises:
        UserError: options of pipelines and of aggregations are mixed.
    """
    wanted = given["pipeline"] is not None or given["grid"] is not None
    others = (
        [name for name in usual if name not in (*PIPELINE_OPTIONS, *SHARED_OPTIONS)]
        if wanted
        else PIPELINE_OPTIONS
    )
    wrong = [name for name in others if given[name] != usual[name].default]
    options_given = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
    if wrong and wanted:
        raise UserError(f"a pipeline has no use for {options_given}; leave it out")
    if wrong:
        raise UserError(f"{options_given}: of a pipeline; say which one, as in --pipeline 1f1b")
    return wanted


def print_pipeline(given: Mapping[str, Any]) -> None:
    """Simulate the pipeline that the options describe and print it, as JSON if they ask for
    that."""
    from dualml.planning.cost import options
    from dualml.planning.cost.pipeline_request import grid_from_options, request_from_options

    schedule = ("pipeline", "grid", "ranks", "micro_batches", "chunks", "owners")
    grid = grid_from_options(*(given[name] for name in schedule))
    times = {name: given[name] for name in ("forward", "backward", "update", "size")}
    link = options.make_link(given["alpha"], given["bandwidth"], given["beta"], None)
    pipeline = request_from_options(given["pipeline"], grid, link, **times)
    if given["json"]:
        print_json(pipeline.describe(), "pipeline")
    else:
        show_pipeline(pipeline, given["grid"], given["lang"])


def show_pipeline(request: PipelineRequest, path: Path | None, lang: str) -> None:
    """Print the grid of a pipeline, its share of idle ticks compared with theory, and live
    activations and, if passes have times, busy seconds per rank. ``path`` is the file of the grid,
    if it has no name."""
    from rich.console import Console

    from dualml.planning.cost.units import format_seconds

    words = section_messages(lang, "simulate_pipeline")
    console, grid = Console(highlight=False), request.grid
    name = request.name or words["own"].format(path=path)
    title = words["title"].format(
        name=name, p=grid.ranks, s=grid.stages, m=grid.micro_batches, t=grid.ticks
    )
    print_text(title)
    for line in draw_grid(grid, console.width, lang):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    print_text(f"\n{idle_share(request, lang)}")
    columns: dict[str, Iterable[str]] = {
        "rank": map(str, range(grid.ranks)),
        "live": map(str, request.live),
    }
    if request.bounds:
        columns["bound"] = map(str, request.bounds)
    if timeline := request.timeline:
        sentence = words["seconds"].format(
            seconds=format_seconds(timeline.seconds),
            bubble=percent(timeline.bubble),
            message=format_seconds(request.transfer_s),
        )
        print_text(sentence)
        columns |= {"busy": map(format_seconds, timeline.busy)}
        columns |= {"waits": map(format_seconds, timeline.idle)}
    print_text()
    heads = [Column(key, words[key], show="number") for key in columns]
    rows = list(map(list, zip(*columns.values(), strict=True)))
    terminal.show(Table("ranks", "", heads, rows), console)
    print_text(words["held"])


def idle_share(request: PipelineRequest, lang: str) -> str:
    """Return a sentence with the share of idle ticks, and its theoretical value if there is one."""
    words, grid, theory = (
        section_messages(lang, "simulate_pipeline"),
        request.grid,
        request.theoretical_bubble,
    )
    if theory is None:
        return words["idle"].format(idle=percent(grid.idle()), theory="")
    formula = "(p−1)/p" if request.name == "naive" else "(p−1)/(m+p−1)"
    formula = "(p−1)/(v·m+p−1)" if request.name == "interleaved" else formula
    by_formula = words["theory"].format(formula=formula, value=percent(theory))
    return words["idle"].format(idle=percent(grid.idle()), theory=by_formula)


def percent(share: float) -> str:
    """Format a fraction as percent with one decimal."""
    return f"{100 * share:.1f} %"


def draw_grid(grid: Grid, width: int, lang: str) -> list[Text]:
    """Draw the grid in blocks of ticks that fit the width, at most `BLOCKS`, then a line with the
    number of further ticks; one text per line."""
    from rich.cells import cell_len
    from rich.text import Text

    words, cells = section_messages(lang, "simulate_pipeline"), grid.cells()
    wide = max(len(cell) for row in cells for cell in row)
    label = max(cell_len(words["tick"]), len(f"{words['rank']} {grid.ranks - 1}"))
    per = max(1, (width - label - 1) // (wide + 1))
    lines = []
    for first in range(0, min(grid.ticks, BLOCKS * per), per):
        ticks = range(first, min(first + per, grid.ticks))
        head = Text(" " * (label - cell_len(words["tick"])) + words["tick"], "dim")
        lines += [Text(), head.append("".join(f" {tick:^{wide}}" for tick in ticks))]
        for rank, row in enumerate(grid.rows):
            line = Text(f"{words['rank']} {rank}".rjust(label))
            for tick in ticks:
                action = row[tick]
                text = "·" if action is None else str(action)
                line.append(" ").append(text.center(wide), action_style(grid, action))
            lines.append(line)
    left = grid.ticks - BLOCKS * per
    return lines if left <= 0 else [*lines, Text(words["more"].format(n=left), "dim")]


def action_style(grid: Grid, action: Action | None) -> str:
    """Return the style of an action, dim for an idle tick, by direction and by the stage's position
    on its rank."""
    if action is None:
        return "dim"
    shades = COLOURS[action.kind]
    before = grid.owners[: action.stage].count(grid.owners[action.stage])
    return shades[before % len(shades)]
