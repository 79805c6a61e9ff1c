"""`dualml plan`: find a layout of a model on many devices, by memory and time."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.interface.cli import complete
from dualml.interface.cli.option_groups import flatten_groups, with_option_groups
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import check_streams, print_json, print_text, write_page
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.planning.planner.devices import Device
    from dualml.planning.planner.search import LayoutPlan
    from dualml.report.columns import Columns

Option = typer.Option
SEARCH, HARDWARE = "search", "devices"
#: Maximum of ``--top``, the number of layouts to list.
MAX_TOP = 1000


@dataclass(frozen=True)
class ClusterOptions:
    """The devices that share the model."""

    devices: Annotated[int, Option(metavar="N")] = 8
    device: Annotated[str, Option(metavar="NAME")] = "a100"
    memory: Annotated[str | None, Option(metavar="SIZE")] = None
    link: Annotated[str | None, Option(metavar="RATE")] = None


@dataclass(frozen=True)
class WorkloadOptions:
    """The training that is planned."""

    batch: Annotated[int | None, Option(metavar="N")] = None
    sequence: Annotated[int | None, Option(metavar="N")] = None
    overrides: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE")] = None
    precision: Annotated[str, Option(metavar="mixed|fp32")] = "mixed"
    attention: Annotated[str, Option(metavar="stored|fused")] = "stored"
    engine: Annotated[str | None, Option(metavar="megatron|dualml")] = None


@dataclass(frozen=True)
class DeviceOptions:
    """Values that replace those of the named device."""

    node: Annotated[int | None, Option(metavar="N", rich_help_panel=HARDWARE)] = None
    inside: Annotated[str | None, Option(metavar="RATE", rich_help_panel=HARDWARE)] = None
    alpha: Annotated[str | None, Option(metavar="TIME", rich_help_panel=HARDWARE)] = None
    peak: Annotated[str | None, Option(metavar="FLOPS", rich_help_panel=HARDWARE)] = None
    hbm: Annotated[str | None, Option(metavar="RATE", rich_help_panel=HARDWARE)] = None
    efficiency: Annotated[float | None, Option(rich_help_panel=HARDWARE)] = None
    overlap: Annotated[float, Option(rich_help_panel=HARDWARE)] = 0.0
    reserve: Annotated[str | None, Option(metavar="SIZE", rich_help_panel=HARDWARE)] = None


@dataclass(frozen=True)
class SearchOptions:
    """The layouts that are considered."""

    tensor: Annotated[int | None, Option(metavar="N", rich_help_panel=SEARCH)] = None
    context: Annotated[int, Option(metavar="N", rich_help_panel=SEARCH)] = 1
    interleave: Annotated[int, Option(metavar="N", rich_help_panel=SEARCH)] = 1
    zero: Annotated[str | None, Option(metavar="N,N", rich_help_panel=SEARCH)] = None
    recompute: Annotated[str | None, Option(metavar="NAME,NAME", rich_help_panel=SEARCH)] = None


@dataclass(frozen=True)
class PlanOutput:
    """The results that are shown, and the page that is written."""

    top: Annotated[int, Option(metavar="N")] = 8
    page: Annotated[Path | None, Option(metavar="FILE")] = None
    published: Annotated[bool, Option("--published")] = False
    run: Annotated[Path | None, Option("--run", metavar="DIR")] = None
    json: AsJson = False
    lang: Lang = "en"


@with_option_groups
def plan(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL|FILE", autocompletion=complete.models)
    ] = None,
    *,
    cluster: ClusterOptions,
    workload: WorkloadOptions,
    hardware: DeviceOptions,
    search: SearchOptions,
    output: PlanOutput,
) -> None:
    """Find the fastest layout of a model on many devices that fits into their memory. Without
    ``model`` list the known models and devices, or show published runs or a run of dualml."""
    options = flatten_groups(locals())
    page, run, top, lang = output.page, output.run, output.top, output.lang
    if output.published or run is not None:
        if model is not None or page is not None or (output.published and run is not None):
            raise UserError(
                "--published is about published runs, --run about one of yours: take one of them, "
                "and leave out MODEL and --page"
            )
        show_published(output.json, lang) if run is None else show_run(run, output.json, lang)
        return
    if model is None:
        if page is not None:
            raise UserError("name the model that the page is about; dualml plan lists them")
        list_all(output.json, lang)
        return
    if not 1 <= top <= MAX_TOP:
        raise UserError(f"--top is from 1 to {MAX_TOP:,}; received {top}")
    streamed = check_streams(output.json, page=page)
    from dualml.planning.planner import request as requests
    from dualml.planning.planner.search import search_layouts

    answer = search_layouts(requests.request_from_options(model, options))
    _ = answer.best_row  # where nothing fits, nothing is written
    if page is not None:
        save_page(answer, top, page, lang)
    if output.json:
        print_json(answer.describe(top), "plan")
        return
    if streamed:
        return
    show_plan(answer, top, lang)
    if page is not None:
        print_text(f"→ {page}")


def show_plan(answer: LayoutPlan, top: int, lang: str) -> None:
    """Print the request, the fastest meshes, an explanation of the best one, and the Pareto
    front."""
    from rich.console import Console

    from dualml.report.plan import tables as shown

    words, console = Messages(lang), Console(highlight=False)
    rows = answer.meshes[:top]
    print_text("\n".join(shown.request_lines(answer, words)))
    print_text(f"\n{shown.considered_sentence(answer, len(rows), words)}")
    terminal.show(shown.layouts_table("plans", answer, rows, words), console)
    print_text()
    for sentence in shown.explain_plan(answer, words):
        print_text(sentence)
    print_text(f"\n{words('planner.front')}")
    terminal.show(shown.layouts_table("front", answer, shown.sample_front(answer), words), console)


def save_page(answer: LayoutPlan, top: int, path: Path, lang: str) -> None:
    """Write the plan, with the ``top`` fastest meshes, as an HTML page."""
    from dualml.report.page.html import render_html
    from dualml.report.plan.page import make_page

    write_page(path, render_html(make_page(answer, top, Messages(lang))))


def list_all(as_json: bool, lang: str) -> None:
    """Print the models and devices that are known by name."""
    from dualml.planning.cost.units import format_bytes
    from dualml.planning.planner.devices import devices
    from dualml.planning.planner.models import known_models
    from dualml.report.columns import make_table
    from dualml.report.plan.tables import format_count, format_rate

    if as_json:
        shapes = {
            name: {**vars(shape), "parameters": shape.parameters, "published": n, "source": source}
            for name, (shape, source, n) in known_models().items()
        }
        described = {name: vars(device) for name, device in devices().items()}
        print_json({"models": shapes, "devices": described}, "plan-names")
        return
    words = Messages(lang)
    sizes = ("layers", "hidden", "heads", "sequence")
    by_model: Columns[tuple[str, Any]] = {
        "name": lambda model: model[0],
        "parameters:": lambda model: format_count(model[1][0].parameters),
        tuple(f"{key}:" for key in sizes): lambda model: map(str, attrgetter(*sizes)(model[1][0])),
    }
    by_device: Columns[Device] = {
        "name": lambda device: device.name,
        "memory:": lambda device: format_bytes(device.memory),
        "peak:": lambda device: f"{device.peaks['mixed'] / 1e12:.4g} TFLOP/s",
        "inside:": lambda device: format_rate(device.inside),
        "between:": lambda device: format_rate(device.between),
    }
    labels, titles = "planner.column.{}", (words("planner.models"), words("planner.devices"))
    models = make_table(words, "models", known_models().items(), by_model, titles[0], labels)
    terminal.show(models)
    print_text()
    terminal.show(make_table(words, "devices", devices().values(), by_device, titles[1], labels))


def show_published(as_json: bool, lang: str) -> None:
    """Print published runs and their predictions."""
    from dualml.report.plan.published import describe, tables

    if as_json:
        print_json(describe(), "plan-published")
        return
    for table in tables(Messages(lang)):
        terminal.show(table)
        print_text()


def show_run(folder: Path, as_json: bool, lang: str) -> None:
    """Print the measured memory of a run's ranks, compared with the planner's prediction; raise
    `UserError` if it has no layout of the planner's."""
    from dualml.experiment.store.load import load
    from dualml.report.plan.measured import compare_memory, describe, memory_table

    rows = list(compare_memory(load([folder])))
    if not rows:
        raise UserError(
            f"{folder}: no arm that ended trains gpt or gpt_llama in a layout of the planner's; "
            "see docs/plan.md for those that it knows"
        )
    if as_json:
        print_json({"ranks": describe(rows)}, "plan-run")
        return
    terminal.show(memory_table(rows, Messages(lang)))
