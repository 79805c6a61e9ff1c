"""`dualml plan`: find a layout of a model on many devices, by memory and time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.interface.cli import complete
from dualml.interface.cli import plan_output as shown
from dualml.interface.cli.option_groups import flatten_groups, with_option_groups
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import check_streams, print_json, print_text, write_page

Option = typer.Option
SEARCH, HARDWARE = "search", "devices"
#: Maximum of ``--top``, the number of layouts to list.
MAX_TOP = 1000


@dataclass(frozen=True)
class ClusterOptions:
    """The devices that share the model."""

    devices: Annotated[int | None, Option(metavar="N")] = None
    device: Annotated[str, Option(metavar="NAME")] = "a100"
    memory: Annotated[str | None, Option(metavar="SIZE")] = None
    link: Annotated[str | None, Option(metavar="RATE")] = None


@dataclass(frozen=True)
class WorkloadOptions:
    """The training that is planned."""

    batch: Annotated[int | None, Option(metavar="N")] = None
    sequence: Annotated[int | None, Option(metavar="N")] = None
    overrides: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE")] = None
    precision: Annotated[str, Option(metavar="mixed|fp8|…")] = "mixed"
    attention: Annotated[str | None, Option(metavar="stored|fused")] = None
    engine: Annotated[str | None, Option(metavar="megatron|torch|…")] = None


@dataclass(frozen=True)
class DeviceOptions:
    """Values that replace those of the named device."""

    node: Annotated[int | None, Option(metavar="N", rich_help_panel=HARDWARE)] = None
    inside: Annotated[str | None, Option(metavar="RATE", rich_help_panel=HARDWARE)] = None
    alpha: Annotated[str | None, Option(metavar="TIME", rich_help_panel=HARDWARE)] = None
    peak: Annotated[str | None, Option(metavar="FLOPS", rich_help_panel=HARDWARE)] = None
    hbm: Annotated[str | None, Option(metavar="RATE", rich_help_panel=HARDWARE)] = None
    efficiency: Annotated[float | None, Option(rich_help_panel=HARDWARE)] = None
    overlap: Annotated[float | None, Option(rich_help_panel=HARDWARE)] = None
    reserve: Annotated[str | None, Option(metavar="SIZE", rich_help_panel=HARDWARE)] = None
    calibrate: Annotated[
        list[Path] | None, Option(metavar="FILE|DIR", rich_help_panel=HARDWARE)
    ] = None


@dataclass(frozen=True)
class SearchOptions:
    """The layouts that are considered."""

    layout: Annotated[str | None, Option(metavar="AXIS=N,…", rich_help_panel=SEARCH)] = None
    pin: Annotated[str | None, Option(metavar="AXIS=N,…", rich_help_panel=SEARCH)] = None
    tensor: Annotated[int | None, Option(metavar="N", rich_help_panel=SEARCH)] = None
    context: Annotated[int, Option(metavar="N", rich_help_panel=SEARCH)] = 1
    interleave: Annotated[int | None, Option(metavar="N", rich_help_panel=SEARCH)] = None
    zero: Annotated[str | None, Option(metavar="N,N", rich_help_panel=SEARCH)] = None
    recompute: Annotated[str | None, Option(metavar="NAME,NAME", rich_help_panel=SEARCH)] = None


@dataclass(frozen=True)
class PlanOutput:
    """The results that are shown, and the page that is written."""

    top: Annotated[int, Option(metavar="N")] = 8
    tokens: Annotated[str | None, Option(metavar="N")] = None
    price: Annotated[float | None, Option(metavar="PRICE")] = None
    export: Annotated[str | None, Option(metavar="NAME")] = None
    export_file: Annotated[Path | None, Option(metavar="FILE")] = None
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
        shown.show_published(output.json, lang) if run is None else shown.show_run(
            run, output.json, lang
        )
        return
    if model is None:
        if page is not None:
            raise UserError("name the model that the page is about; dualml plan lists them")
        shown.list_all(output.json, lang)
        return
    if not 1 <= top <= MAX_TOP:
        raise UserError(f"--top is from 1 to {MAX_TOP:,}; received {top}")
    print_answer(model, options, output)


def print_answer(model: str, options: dict[str, Any], output: PlanOutput) -> None:
    """Search the layouts of a model, write the page and the export that were asked for, and print
    the answer, the export, or JSON."""
    from dualml.planning.planner import request as requests
    from dualml.planning.planner.budget import check_price, parse_tokens
    from dualml.planning.planner.search import search_layouts

    page, top, lang = output.page, output.top, output.lang
    tokens = None if output.tokens is None else parse_tokens(output.tokens)
    check_price(output.price, output.tokens)
    if output.export_file is not None and output.export is None:
        raise UserError("--export-file is where an export is written; name it by --export")
    printed = output.export is not None and output.export_file is None
    streamed = check_streams(output.json, page=page, **{"export-file": output.export_file})
    if printed and (output.json or streamed):
        raise UserError(
            "--export prints to standard output, as --json and - do: give it an --export-file"
        )
    request = requests.request_from_options(model, options)
    fitted = None
    if options["calibrate"]:
        from dualml.planning.planner.calibration import calibrate

        fitted = calibrate(options["calibrate"], request)
        request = fitted.apply(request)
    answer = search_layouts(request)
    row = answer.answer_row  # where nothing fits, nothing is written
    extras = shown.PlanExtras(answer, tokens, output.price, fitted)
    export = None
    if output.export is not None:
        from dualml.planning.exports import export_layout

        export = export_layout(output.export, request, answer.layouts.describe(row))
    if page is not None:
        shown.save_page(answer, top, page, lang)
    if export is not None and output.export_file is not None:
        write_page(output.export_file, export)
    if output.json:
        print_json({**answer.describe(top), **extras.describe()}, "plan")
        return
    if printed and export is not None:
        print_text(export.rstrip("\n"))
        return
    if streamed:
        return
    shown.show_plan(answer, top, lang, extras)
    for path in (output.export_file, page):
        if path is not None:
            print_text(f"→ {path}")
