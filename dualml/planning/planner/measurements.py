"""Measured steps to calibrate a plan with: JSON files, and run folders of dualml."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import read_json
from dualml.common.strict_model import StrictModel, describe_validation_error
from dualml.planning.cost import units
from dualml.planning.planner.arm import layout_from_arm
from dualml.planning.planner.axes import complete_axes, parse_axes
from dualml.planning.planner.engine import DUALML, TrainingEngine
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.models import find_model
from dualml.planning.planner.rules import check_layout
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.zoo import shape_from_spec

if TYPE_CHECKING:
    from dualml.algorithms.model.spec import ModelSpec
    from dualml.experiment.arm import Arm
    from dualml.experiment.store.run import RunData
    from dualml.planning.planner.plan_request import PlanRequest

#: Least number of steps of a measurement: the first ones compile, and fill caches.
MIN_STEPS = 5
MAX_SECONDS = 1e6


class MeasuredStep(StrictModel):
    """One measurement as a JSON file has it.

    Attributes:
        model: name or path, as `dualml plan` takes it.
        device: name of the device; omitted: the one of the plan.
        layout: axes as `--layout` takes them.
        batch: sequences per update.
        seconds: of one update: the median, or a list of all measured steps.
        steps: number of measured steps; not needed for a list.
        memory: peak bytes of the fullest device, as ``70GB``.
        swapped: whether the machine swapped, or offloaded on its own, during the steps.
    """

    model: str
    layout: str
    batch: int
    seconds: float | int | list[float | int]
    device: str | None = None
    sequence: int | None = None
    precision: str | None = None
    attention: str | None = None
    steps: int | None = None
    memory: str | int | None = None
    swapped: bool = False


@dataclass(frozen=True)
class Measurement:
    """A measured update in a layout.

    Attributes:
        source: file or folder, and arm or number.
        layouts: a table with the single layout.
        seconds, low, high: median seconds of an update, and the range in which half of the steps
            lie; all equal if only the median is known.
        memory: peak bytes of the fullest device; None if unknown.
    """

    source: str
    shape: Shape
    layouts: Layouts
    engine: TrainingEngine
    precision: str
    fused: bool
    seconds: float
    low: float
    high: float
    steps: int
    memory: float | None = None

    @property
    def devices(self) -> int:
        """Number of devices that took part."""
        return int(self.layouts.devices[0])


def read_measurements(paths: Sequence[Path], request: PlanRequest) -> list[Measurement]:
    """Read the measurements of JSON files, each with one or a list of `MeasuredStep`, and of run
    folders.

    Args:
        request: the plan, whose device, precision and attention stand for those that a file leaves
            out.

    Raises:
        UserError: an invalid file, or a measurement that says nothing: on another device, of less
            than `MIN_STEPS` steps, or from a machine that swapped. The device of a run folder is
            not checked, and its arms of fewer steps are left out, if others are left.
    """
    found: list[Measurement] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"--calibrate {escape_unprintable(str(path))}: no such file or folder")
        found += _read_run(path) if path.is_dir() else _read_file(path, request)
    return found


def _read_file(path: Path, request: PlanRequest) -> Iterator[Measurement]:
    """Yield the measurements of a JSON file; raise `UserError` for an invalid or unusable one."""
    content = read_json(path)
    rows = content if isinstance(content, list) else [content]
    if not rows:
        raise UserError(f"{path}: no measurement; write one with model, layout, batch, seconds")
    for number, row in enumerate(rows, 1):
        where = f"{path}" if len(rows) == 1 else f"{path}, measurement {number}"
        try:
            step = MeasuredStep.model_validate(row)
        except ValidationError as error:
            raise UserError(f"{where}: {describe_validation_error(error, MeasuredStep)}") from None
        yield _from_step(step, where, request)


def _from_step(step: MeasuredStep, where: str, request: PlanRequest) -> Measurement:
    """Return the measurement of an entry, which ``where`` names in errors; raise `UserError` if it
    is unusable."""
    if step.swapped:
        raise UserError(
            f"{where}: swapped: its seconds are those of the disk; measure a smaller micro-batch"
        )
    if step.device not in (None, request.device):
        raise UserError(
            f"{where}: measured on {step.device}, and the plan is for {request.device}; give "
            "--device"
        )
    listed = isinstance(step.seconds, list)
    values = [float(value) for value in np.atleast_1d(step.seconds)]
    steps = len(values) if listed else step.steps
    if steps is None:
        raise UserError(f"{where}: steps is missing; say how many steps the seconds are of")
    if steps < MIN_STEPS:
        raise UserError(f"{where}: {steps} steps are too few; measure at least {MIN_STEPS}")
    if not all(0 < value <= MAX_SECONDS for value in values):
        raise UserError(f"{where}: seconds are above 0 and at most {MAX_SECONDS:,.0f}")
    precision = step.precision or request.precision
    attention = step.attention or ("fused" if request.fused else "stored")
    known = request.engine.precisions
    if precision not in known or attention not in ("stored", "fused"):
        raise UserError(f"{where}: precision is {' or '.join(known)}, attention stored or fused")
    shape = find_model(step.model, step.sequence)
    axes = complete_axes(parse_axes(step.layout, where), None)
    if step.batch < 1:
        raise UserError(f"{where}: batch is at least 1; received {step.batch}")
    check_layout(shape, axes, step.batch, request.engine, where)
    low, high = _quartiles(values)
    return Measurement(
        where,
        shape,
        Layouts.from_axes(step.batch, **axes),
        request.engine,
        precision,
        attention == "fused",
        statistics.median(values),
        low,
        high,
        steps,
        None if step.memory is None else float(units.parse_bytes(str(step.memory), "memory")),
    )


def _quartiles(values: list[float]) -> tuple[float, float]:
    """Return the first and the third quartile; of one value, the value twice."""
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def _read_run(folder: Path) -> Iterator[Measurement]:
    """Yield the measurements of a run folder: the arms that are layouts of the planner, on each
    backend. Raise `UserError` if there is none with enough updates."""
    from dualml.experiment.store.load import load

    run = load([folder])
    found, short = 0, 0
    for arm in run.arms:
        for backend in run.backends:
            trials = [t for t in run.select(arm, backend) if len(t.step_s) == 3]
            settings = run.settings[arm]
            layout = _layout_of_arm(run, settings) if trials else None
            if layout is None:
                continue
            steps = min(int(t.updates or 0) for t in trials)
            if steps < MIN_STEPS:
                short += 1
                continue
            found += 1
            low, middle, high = (statistics.median(t.step_s[k] for t in trials) for k in range(3))
            precision = "mixed" if settings.plan_precision.is_low else "fp32"
            yield Measurement(
                f"{folder}, {arm} on {backend}",
                *layout,
                DUALML,
                precision,
                True,
                float(middle),
                float(low),
                float(high),
                steps,
            )
    if not found:
        reason = f"; {short} have less than {MIN_STEPS} updates" if short else ""
        raise UserError(
            f"--calibrate {folder}: no arm with timed updates trains gpt or gpt_llama in a layout "
            f"of the planner's{reason}"
        )


def find_spec(run: RunData, arm: Arm) -> ModelSpec:
    """Return the `ModelSpec` that an arm of a run trained, from the run's plan: that of its
    variant, else the run's model.

    Raises:
        UserError: the plan cannot be read.
    """
    from dualml.experiment.store.plan import PLAN

    record = PLAN.read(run.folders[0] / "plan")
    return record.models.get(arm.variant, record.model)


def _layout_of_arm(run: RunData, settings: Arm) -> tuple[Shape, Layouts] | None:
    """Return the model's shape and the layout that an arm trains; None if the planner has no such
    model or layout."""
    try:
        shape = shape_from_spec(find_spec(run, settings), settings.batch_size)
        return shape, layout_from_arm(shape, settings)
    except UserError:
        return None
