"""``dualml split``: how a model is cut, who holds what, and what crosses which link."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dualml.report.words import Words
    from dualml.split.plan import SplitPlan

Option = typer.Option


def split(
    what: Annotated[str, typer.Argument(metavar="MODEL|LAB", help="mlp, or lab4 with --arm.")],
    arm: Annotated[str | None, Option("--arm", help="An arm of a lab that has a split.")] = None,
    ranks: Annotated[int, Option("--ranks", min=2, help="How many there are.")] = 2,
    stages: Annotated[int, Option("--stages", min=0, help="0: as many as pipeline ranks.")] = 0,
    cut: Annotated[list[str] | None, Option("--cut", help="A stage begins at this layer.")] = None,
    balance: Annotated[str, Option("--balance", help="parameters, activations or time.")] = "",
    backend: Annotated[str, Option("--backend", help="Whose time is measured.")] = "numpy",
    tensor: Annotated[int, Option("--tensor", min=1, help="Ranks that share each layer.")] = 1,
    data: Annotated[int, Option("--data", min=1, help="Replicas.")] = 1,
    schedule: Annotated[str, Option("--schedule", help="Order of the micro-batches.")] = "1f1b",
    micro_batches: Annotated[int, Option("--micro-batches", "-m", min=1)] = 4,
    batch: Annotated[int, Option("--batch", min=1, help="Samples of an update.")] = 64,
    draw: Annotated[Path | None, Option("--draw", help="Draw the plan into this SVG.")] = None,
    json: Annotated[bool, Option("--json", help="As JSON.")] = False,
    lang: Annotated[str, Option(help="en or zh")] = "en",
) -> None:
    """Cut a model into pieces: stages, slices, bytes on every link."""
    from dualml.cli.output import check_lang, print_json
    from dualml.errors import UserError
    from dualml.experiment.split import Split
    from dualml.model import model

    check_lang(lang)
    times: dict[str, float] | None = None
    if arm is not None:
        plan, batch = of_arm(what, arm)
    else:
        spec = model(what)
        asked = balance or "parameters"
        if asked == "time":
            times = measured(backend, what, batch)
        try:
            settings = Split(
                stages=stages, cut=cut or [], balance=asked, schedule=schedule,  # type: ignore[arg-type]
                micro_batches=micro_batches, tensor=tensor, data=data,
            )  # fmt: skip
        except ValueError as error:
            raise UserError(reason(error)) from None
        plan = settings.plan(spec, ranks, times)
    told = plan.describe(batch)
    if times is not None:
        told["times_s"] = times
    if draw is not None:
        save(told, draw, lang)
    if json:
        print_json(told)
    else:
        show(plan, told, lang)


def reason(error: ValueError) -> str:
    """The first problem that the settings have, in one line."""
    found: Any = getattr(error, "errors", lambda: [{"msg": str(error), "loc": ()}])()[0]
    where = ".".join(str(part) for part in found["loc"])
    text = str(found["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def of_arm(lab: str, arm: str) -> tuple[SplitPlan, int]:
    """The plan of an arm, and its batch size."""
    from dualml.errors import UserError
    from dualml.experiment.load import load
    from dualml.experiment.split import reference_times
    from dualml.model import model

    experiment = load(lab, arms=[arm])
    name, found = next(iter(experiment.arms.items()))
    if found.split is None:
        raise UserError(f"arm {name} of {experiment.name} has no split: one rank has the model")
    spec = model(found.model or experiment.model)
    timed = found.split.balance == "time" and not found.split.cut
    times = reference_times(spec) if timed else None
    return found.split.plan(spec, found.world_size, times), found.batch_size


def measured(backend: str, model: str, batch: int) -> dict[str, float]:
    """Seconds of each layer on a backend, in a process of its own."""
    from dualml.backend import choose
    from dualml.errors import TrialError, UserError
    from dualml.launch.ranks import run_ranks

    (info, *_) = choose(backend)
    argument = {"model": model, "batch": batch}
    try:
        (found,) = run_ranks(info.name, 1, "dualml.split.timing:measure", argument)
    except TrialError as error:
        raise UserError(f"the layers could not be timed: {error}") from None
    return dict(found)


def save(told: Mapping[str, Any], path: Path, lang: str) -> None:
    """Draw the plan into an SVG."""
    from dualml.files import write_bytes
    from dualml.report.splits.plans import drawn
    from dualml.report.words import Words

    text, _ = drawn(told, "plan", Words(lang))
    write_bytes(path, text.encode())


def show(plan: SplitPlan, told: Mapping[str, Any], lang: str) -> None:
    """The plan as tables."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dualml.report.numbers import quantity
    from dualml.report.words import Words

    words, console = Words(lang), Console(highlight=False)
    console.print(words("split.title", model=plan.spec.name, n=plan.world_size, mesh=plan.mesh,
                        batch=told["batch"]), markup=False)  # fmt: skip
    table = Table(box=None, pad_edge=False)
    for head in ("rank", "holds", "parameters"):
        table.add_column(words(f"split.{head}"), overflow="fold",
                         justify="right" if head == "parameters" else "left")  # fmt: skip
    for rank in told["ranks"]:
        table.add_row(str(rank["rank"]), escape(holds(plan, rank, words)), f"{rank['elements']:,}")
    console.print(table)
    if "times_s" in told:
        shown = ", ".join(f"{n} {1e3 * s:.2f}" for n, s in told["times_s"].items() if s)
        console.print(words("split.times", values=shown), markup=False)
    for link in told["links"]:
        console.print(
            words("split.link", source=link["source"], target=link["target"],
                  what=words(f"split.{link['what']}"), n=link["messages"],
                  size=quantity(link["nbytes"])),
            markup=False,
        )  # fmt: skip
    for met in told["meetings"]:
        kind = words.either(f"splits.meeting.{met['kind'].replace(' ', '_')}", met["kind"])
        console.print(
            words("split.meeting", ranks=", ".join(map(str, met["ranks"])), kind=kind,
                  n=met["calls"], size=quantity(met["nbytes"])),
            markup=False,
        )  # fmt: skip
    if len(plan.stages) > 1:
        console.print(words("split.schedule", name=plan.schedule, m=plan.micro_batches),
                      markup=False)  # fmt: skip
        console.print(str(plan.grid), markup=False, soft_wrap=True)


def holds(plan: SplitPlan, rank: Mapping[str, Any], words: Words) -> str:
    """The layers of a rank, with their slices."""
    from dualml.report.splits.layers import sliced

    parts: dict[str, str] = {}
    for name, told in rank["parameters"].items():
        if told["part"] != "whole":
            part = sliced(told["part"], words, blocks=True)
            parts.setdefault(name.rpartition(".")[0], part)
    stages = []
    for stage in rank["stages"]:
        layers = [f"{n} [{parts[n]}]" if n in parts else n for n in plan.stages[stage]]
        stages.append(f"{stage}: {' '.join(layers)}")
    return "; ".join(stages)
