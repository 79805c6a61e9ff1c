"""`dualml simulate`: predict what an aggregation costs, for any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.errors import UserError
from dualml.common.words import section_messages
from dualml.common.words.numbers import NO_VALUE
from dualml.interface.cli import complete
from dualml.interface.cli import pipeline as pipelines
from dualml.interface.cli import published as publications
from dualml.interface.cli.option_groups import flatten_groups, with_option_groups
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Cell, Cells, Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.planning.cost.link import Link
    from dualml.planning.cost.predict import Prediction
    from dualml.planning.cost.request import CostRequest


@dataclass(frozen=True)
class AggregationOptions:
    """The aggregations that are predicted: their ranks and bytes."""

    ranks: Annotated[str | None, typer.Option(metavar="N,N|N..N")] = None
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", autocompletion=complete.strategies)
    ] = None
    size: Annotated[str | None, typer.Option(metavar="BYTES")] = None
    model: Annotated[str | None, typer.Option(metavar="NAME")] = None


@dataclass(frozen=True)
class LinkOptions:
    """The constants of the links between ranks."""

    alpha: Annotated[str | None, typer.Option(metavar="TIME")] = None
    bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None
    beta: Annotated[str | None, typer.Option(metavar="TIME/B")] = None
    gamma: Annotated[str | None, typer.Option(metavar="TIME/B")] = None
    fit: Annotated[Path | None, typer.Option(metavar="FILE")] = None


@dataclass(frozen=True)
class UpdateOptions:
    """The parts of an update besides messages, and the slow rank."""

    compute: Annotated[str, typer.Option(metavar="TIME")] = "0s"
    every: int = 10
    slow_rank: int | None = None
    slow_compute: float = 1.0
    slow_latency: Annotated[str, typer.Option(metavar="TIME")] = "0s"
    slow_bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None
    jitter: Annotated[str, typer.Option(metavar="TIME")] = "0s"
    seed: int = 0


@dataclass(frozen=True)
class TopologyOptions:
    """The connections between nodes."""

    topology: Annotated[str | None, typer.Option(metavar="NAME")] = None
    inter_alpha: Annotated[str | None, typer.Option(metavar="TIME")] = None
    inter_bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None


@dataclass(frozen=True)
class PredictionOutput:
    """The form in which predictions are shown."""

    busbw: Annotated[bool, typer.Option("--busbw")] = False
    published: Annotated[bool, typer.Option("--published")] = False
    json: AsJson = False
    lang: Lang = "en"


@with_option_groups
def simulate(
    *,
    aggregation: AggregationOptions,
    links: LinkOptions,
    training: UpdateOptions,
    nodes: TopologyOptions,
    schedule: Annotated[bool, typer.Option("--schedule")] = False,
    pipeline: pipelines.PipelineOptions,
    output: PredictionOutput,
) -> None:
    """Predict seconds per update of aggregations for any number of ranks, or lay out a pipeline."""
    given = flatten_groups(locals())
    from dualml.planning.cost import options, units
    from dualml.planning.cost.closed_form import names
    from dualml.planning.cost.request import CostRequest, parse_ranks, schedule_grids

    if output.published:
        publications.print_published(given, signature(simulate).parameters)
        return
    if pipelines.wants_pipeline(given, signature(simulate).parameters):
        pipelines.print_pipeline(given)
        return
    chosen = tuple(dict.fromkeys(aggregation.strategy or names()))
    numbers = parse_ranks(aggregation.ranks or ("4" if schedule else "2,4,8"))
    if schedule:
        grids = schedule_grids(chosen, numbers, training.every)
        if output.json:
            print_json({"ranks": numbers[0], "schedules": grids}, "simulate-schedule")
        else:
            print_text("\n\n".join(f"{name}\n{grid}" for name, grid in grids.items()))
        return
    constants = links.alpha, links.bandwidth, links.beta, links.gamma
    fits = options.load_fits(links.fit, *constants)
    one = options.make_link(*constants)
    request = CostRequest(
        strategies=chosen,
        ranks=numbers,
        nbytes=options.vector_bytes(aggregation.size, aggregation.model),
        link=(lambda name: one) if fits is None else fits.link,
        compute_s=units.parse_seconds(training.compute, "--compute"),
        slow=options.make_straggler(
            training.slow_rank,
            training.slow_compute,
            training.slow_latency,
            training.slow_bandwidth,
            training.jitter,
        ),
        topology=options.make_topology(
            nodes.topology or ("flat" if fits is None else fits.topology),
            nodes.inter_alpha,
            nodes.inter_bandwidth,
            one,
        ),
        every=training.every,
        seed=training.seed,
        engine="" if fits is None else fits.engine,
    )
    if output.json:
        print_json(request.describe(output.lang), "simulate")
        return
    if output.busbw and request.compute_s:
        raise UserError(
            f"--busbw is of messages alone; received --compute {training.compute}: leave it out"
        )
    show_predictions(request, links.fit, output.lang, output.busbw)


def show_predictions(
    request: CostRequest, fit: Path | None, lang: str, busbw: bool = False
) -> None:
    """Print one row per strategy and one column per number of ranks, in as many tables as needed.

    The cells are seconds, or bus bandwidth with ``busbw``; the fastest of a column are marked.
    Assumptions are printed before the tables, comparisons after them.
    """
    from rich.console import Console

    from dualml.planning.cost import units
    from dualml.planning.cost.compare import fastest

    words, console = section_messages(lang, "simulate"), Console(highlight=False)
    title = words["title_busbw" if busbw else "title"].format(
        size=units.format_bytes(request.nbytes),
        compute=units.format_seconds(request.compute_s),
        topology=request.topology,
    )
    table = request.table()
    best = {n: fastest({k: p.seconds for k, p in column.items()}) for n, column in table.items()}
    print_text("\n".join([title, *assumptions(request, fit, lang)]))

    def cell(p: Prediction) -> Cell:
        text = _bus_bandwidth(p) if busbw else units.format_seconds(p.seconds)
        return Cell(f"{text} *", "good") if p.strategy in best[p.n] else Cell(f"{text}  ")

    names = Column("strategy", words["strategy"])
    label = max(map(len, (*request.strategies, names.label)))
    wide = max(len(cell(p).text) for column in table.values() for p in column.values())
    heads = {n: Column(str(n), f"n = {n:,}  ", show="number") for n in request.ranks}
    wide = max(wide, *(len(head.label) for head in heads.values()))
    per = max(1, (console.width - label - 2) // (wide + 2))
    numbers = list(request.ranks)
    for columns in (numbers[i : i + per] for i in range(0, len(numbers), per)):
        rows: list[Cells] = [
            [name, *(cell(table[n][name]) for n in columns)] for name in request.strategies
        ]
        print_text()
        terminal.show(Table("seconds", "", [names, *(heads[n] for n in columns)], rows), console)
    print_text()
    if any(best.values()):
        print_text(words["note"])
    for text in request.sentences(table, lang):
        print_text(text)


def _bus_bandwidth(p: Prediction) -> str:
    """Format the bus bandwidth in GB/s, as nccl-tests print it; a dash if there is none."""
    return NO_VALUE if p.busbw is None else f"{p.busbw / 1e9:#.3g} GB/s"


def assumptions(request: CostRequest, fit: Path | None, lang: str) -> list[str]:
    """Return sentences with the constants of the links, or the path of their ``fit``, those of the
    link between nodes if given, and how the slow rank, if any, is slow."""
    from dualml.planning.cost.units import format_bytes, format_seconds

    def constants(key: str, link: Link) -> str:
        alpha, beta, gamma = map(format_seconds, vars(link).values())
        return section_messages(lang, "simulate")[key].format(alpha=alpha, beta=beta, gamma=gamma)

    words, slow = section_messages(lang, "simulate"), request.slow
    lines = [
        constants("constants", request.link(request.strategies[0]))
        if fit is None
        else words["fitted"].format(path=fit)
    ]
    if request.topology.inter is not None:
        lines.append(constants("between", request.topology.inter))
    if slow is not None:
        rate = slow.bandwidth_bytes_per_s
        values = (
            f"{slow.compute:g}" if slow.compute != 1 else "",
            format_seconds(slow.latency_s) if slow.latency_s else "",
            format_bytes(rate) if rate is not None else "",
            format_seconds(slow.jitter_s) if slow.jitter_s else "",
        )
        how = [t.format(v) for t, v in zip(words["how"].split("|"), values, strict=True) if v]
        lines.append(words["slow"].format(rank=slow.rank, how=words["comma"].join(how)))
    return lines
