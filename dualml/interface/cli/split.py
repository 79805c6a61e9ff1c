"""``dualml split``: show how a model is split, what each rank holds, and what each link
transfers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import TrialError, UserError
from dualml.common.words import Messages
from dualml.common.words.numbers import quantity
from dualml.interface.cli import complete
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import ARM, OutputOptions
from dualml.interface.cli.output import check_streams, print_json, print_text, write_page
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.experiment.split import Split
    from dualml.parallel.split.plan import SplitPlan
    from dualml.report.columns import Columns

Option = typer.Option


@dataclass(frozen=True)
class SplitOptions:
    """The way in which ranks share a model and its batch."""

    ranks: Annotated[int, Option("--ranks", min=2)] = 2
    stages: Annotated[int, Option("--stages", min=0)] = 0
    cut: Annotated[list[str] | None, Option("--cut")] = None
    balance: Annotated[str, Option("--balance")] = ""
    backend: Annotated[str, Option("--backend")] = "numpy"
    tensor: Annotated[int, Option("--tensor", min=1)] = 1
    sequence: Annotated[bool, Option("--sequence")] = False
    regather: Annotated[bool, Option("--regather")] = False
    context: Annotated[int, Option("--context", min=1)] = 1
    data: Annotated[int, Option("--data", min=1)] = 1
    schedule: Annotated[str, Option("--schedule")] = "1f1b"
    micro_batches: Annotated[int, Option("--micro-batches", "-m", min=1)] = 4
    batch: Annotated[int, Option("--batch", min=1)] = 64

    def settings(self) -> Split:
        """Return the split as an arm's settings describe it.

        Raises:
            UserError: values that are invalid together.
        """
        from dualml.experiment.split import Split

        values = {name: value for name, value in vars(self).items() if name in Split.model_fields}
        values |= {"cut": self.cut or [], "balance": self.balance or "parameters"}
        try:
            return Split(**values)
        except ValueError as error:
            raise UserError(first_problem(error)) from None


@with_option_groups
def split(
    what: Annotated[str, typer.Argument(metavar="MODEL|LAB", autocompletion=complete.labs)],
    arm: Annotated[str | None, ARM] = None,
    *,
    options: SplitOptions,
    draw: Annotated[Path | None, Option("--draw")] = None,
    output: OutputOptions,
) -> None:
    """Split a model into stages and slices, and show the bytes on every link. With ``arm`` the
    split is that of an arm of the experiment, and ``options`` are ignored."""
    from dualml.algorithms.model import model
    from dualml.parallel.split.traffic import describe

    times: dict[str, float] | None = None
    lower, streamed = False, check_streams(output.json, draw=draw)
    batch = options.batch
    if arm is not None:
        plan, batch, lower = plan_of_arm(what, arm)
    else:
        spec = model(what)
        if options.balance == "time":
            times = measure_layers(options.backend, what, batch)
        plan = options.settings().plan(spec, options.ranks, times)
    described = describe(plan, batch, lower=lower)
    if times is not None:
        described["times_s"] = times
    if draw is not None:
        save_drawing(described, draw, output.lang)
    if output.json:
        print_json(described, "split")
    elif not streamed:
        show_split(plan, described, output.lang)


def first_problem(error: ValueError) -> str:
    """Return the first validation error of the settings, or the error's own text, in one line."""
    problem: Any = getattr(error, "errors", lambda: [{"msg": str(error), "loc": ()}])()[0]
    where = ".".join(str(part) for part in problem["loc"])
    text = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def plan_of_arm(lab: str, arm: str) -> tuple[SplitPlan, int, bool]:
    """Return the plan of an arm, its batch size in samples (0: all), and whether it trains in low
    precision; raise `UserError` for an arm without a split."""
    from dualml.algorithms.model import model
    from dualml.experiment.load import load
    from dualml.experiment.split import reference_times

    experiment = load(lab, arms=[arm])
    arm, settings = next(iter(experiment.arms.items()))
    if settings.split is None:
        raise UserError(f"arm {arm} of {experiment.name} has no split: one rank has the model")
    spec = model(settings.model or experiment.model, **experiment.model_settings(settings))
    timed = settings.split.balance == "time" and not settings.split.cut
    times = reference_times(spec) if timed else None
    plan = settings.split.plan(spec, settings.world_size, times)
    return plan, settings.batch_size, settings.plan_precision.is_low


def measure_layers(backend: str, model: str, batch: int) -> dict[str, float]:
    """Measure the median seconds of a forward plus a backward pass of each layer on a batch, on the
    first of the named backends and one thread of a CPU, in a separate process; layers that compute
    nothing have 0. Raise `UserError` if it fails."""
    from dualml.backend import select_backends
    from dualml.launch.ranks import run_ranks

    (info, *_) = select_backends(backend)
    argument = {"model": model, "batch": batch}
    try:
        (times,) = run_ranks(info.name, 1, "dualml.parallel.split.timing:measure", argument)
    except TrialError as error:
        raise UserError(f"the layers could not be timed: {error}") from None
    return dict(times)


def save_drawing(described: Mapping[str, Any], path: Path, lang: str) -> None:
    """Draw the plan into an SVG file."""
    from dualml.report.draw import standalone
    from dualml.report.splits.drawing import plan_figure

    figure = plan_figure("plan", described, Messages(lang))
    write_page(path, standalone(figure))


def show_split(plan: SplitPlan, described: Mapping[str, Any], lang: str) -> None:
    """Print the plan: a table of ranks, then a line for each link and collective, and the grid of a
    pipeline."""
    from dualml.report.columns import make_table
    from dualml.report.splits.layers import collective_name

    words = Messages(lang)
    title = "split.context" if plan.shared == "context" else "split.title"
    print_text(
        words(
            title, model=plan.spec.name, n=plan.world_size, mesh=plan.mesh, batch=described["batch"]
        )
    )
    read: Columns[Mapping[str, Any]] = {
        "rank": lambda rank: str(rank["rank"]),
        "holds": lambda rank: rank_layers(plan, rank, words),
        "parameters:": lambda rank: f"{rank['elements']:,}",
    }
    terminal.show(make_table(words, "split", described["ranks"], read, labels="split.{}"))
    if "times_s" in described:
        listed = ", ".join(f"{n} {1e3 * s:.2f}" for n, s in described["times_s"].items() if s)
        print_text(words("split.times", values=listed))
    for key, sent in (("link", described["links"]), ("transfer", described.get("transfers", ()))):
        for each in sent:
            what, size = words(f"split.{each['what']}"), quantity(each["nbytes"])
            values = {**each, "what": what, "n": each["messages"], "size": size}
            print_text(words(f"split.{key}", **values))
    for each in described["meetings"]:
        print_text(
            words(
                "split.collective",
                ranks=", ".join(map(str, each["ranks"])),
                kind=collective_name(each["kind"], words),
                n=each["calls"],
                size=quantity(each["nbytes"]),
            )
        )
    if len(plan.stages) > 1:
        print_text(words("split.schedule", name=plan.schedule, m=plan.micro_batches))
        print_text(str(plan.grid))


def rank_layers(plan: SplitPlan, rank: Mapping[str, Any], words: Messages) -> str:
    """Format the stages of a rank in one line, each with its layers, and those of which it has a
    slice with that slice."""
    from dualml.report.splits.layers import format_slice

    parts: dict[str, str] = {}
    for name, described in rank["parameters"].items():
        if described["part"] != "whole":
            part = format_slice(described["part"], words, blocks=True)
            parts.setdefault(name.rpartition(".")[0], part)
    stages = []
    for stage in rank["stages"]:
        layers = [f"{n} [{parts[n]}]" if n in parts else n for n in plan.stages[stage]]
        on = f" ({plan.devices[stage]})" if plan.devices else ""
        stages.append(f"{stage}{on}: {' '.join(layers)}")
    return "; ".join(stages)
