"""Print answers, known models and devices, published runs and measured ranks of `dualml plan`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.interface.cli.output import print_json, print_text, write_page
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.planning.planner.budget import TrainingBudget
    from dualml.planning.planner.calibration import PlanCalibration
    from dualml.planning.planner.devices import Device
    from dualml.planning.planner.layout_plan import LayoutPlan
    from dualml.report.columns import Columns


@dataclass(frozen=True)
class PlanExtras:
    """Additions to the answer of `dualml plan`: days and cost, and a calibration.

    Attributes:
        tokens: tokens to train on; None: no budget is asked for.
        price: price of a device-hour.
    """

    plan: LayoutPlan
    tokens: float | None = None
    price: float | None = None
    calibration: PlanCalibration | None = None

    @property
    def budget(self) -> TrainingBudget | None:
        """Days and cost of the layout that the answer is about; None without tokens."""
        from dualml.planning.planner.budget import plan_budget

        if self.tokens is None:
            return None
        request = self.plan.request
        return plan_budget(
            self.tokens,
            request.batch * request.shape.sequence,
            float(self.plan.update_seconds[self.plan.answer_row]),
            request.cluster.devices,
            self.price,
        )

    def describe(self) -> JsonObject:
        """Return ``budget`` and ``calibration`` as JSON-compatible values, those that there are."""
        described: JsonObject = {}
        if self.budget is not None:
            described["budget"] = {**vars(self.budget), "days": self.budget.days}
        if self.calibration is not None:
            described["calibration"] = self.calibration.describe()
        return described

    def sentences(self, words: Messages) -> Iterator[str]:
        """Yield the sentences about days and cost."""
        from dualml.report.plan.sentences import budget_sentence

        if self.budget is not None:
            yield budget_sentence(self.budget, self.price, words)


def show_plan(answer: LayoutPlan, top: int, lang: str, extras: PlanExtras) -> None:
    """Print the request, the fastest meshes, an explanation of the answer, and the Pareto front;
    of a layout that the request names only what it takes, and what would be faster."""
    from rich.console import Console

    from dualml.report.plan import tables as shown
    from dualml.report.plan.calibration import calibration_lines
    from dualml.report.plan.sentences import explain_plan

    words, console = Messages(lang), Console(highlight=False)
    rows = answer.mesh_rows[:top]
    print_text("\n".join(shown.request_lines(answer, words)))
    if extras.calibration is not None:
        print_text("\n".join(calibration_lines(extras.calibration, words)))
    if answer.layout_row is None:
        print_text(f"\n{shown.considered_sentence(answer, len(rows), words)}")
        terminal.show(shown.layouts_table("plans", answer, rows, words), console)
    print_text()
    for sentence in (*explain_plan(answer, words), *extras.sentences(words)):
        print_text(sentence)
    if answer.layout_row is not None:
        return
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
        described = {name: asdict(device) for name, device in devices().items()}
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
    """Print published runs and the planner's predictions as tables in ``lang`` (``en`` or ``zh``),
    or as JSON."""
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
