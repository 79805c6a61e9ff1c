"""Reader of run folders as `docs/run-folder.md` defines them: one `RunData` with all that can be
read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dualml.common.errors import UserError
from dualml.experiment.store.costs import COLLECTIVES, COST, CostRecord
from dualml.experiment.store.findings import read_findings
from dualml.experiment.store.manifest import RUN, TrialRecord, read_run
from dualml.experiment.store.merge import merge
from dualml.experiment.store.plan import PLAN, PlanChanged, plan_folder, restore_plan
from dualml.experiment.store.plan_record import PlanRecord
from dualml.experiment.store.records import Array, Curve, read_records
from dualml.experiment.store.run import RunData, Trial
from dualml.experiment.store.times import TIMELINE, TIMES, ColumnFile
from dualml.experiment.store.trial import trial_folder
from dualml.experiment.store.trial_comparison import restore_verdicts
from dualml.experiment.store.usage import Usage, read_usage, summarize_samples
from dualml.experiment.store.verdicts import PARITY, ParityRecord
from dualml.parallel.split.timeline import COLUMNS

T = TypeVar("T")
#: Metrics of classes and ranks that are not drawn as curves.
UNDRAWN_METRICS = ("divergence", "drift")
#: Attributes of a `Trial` that are those of its record: the others follow from more than that.
SHARED_FIELDS = ({field.name for field in fields(Trial)} & TrialRecord.model_fields.keys()) - {
    *("status", "reason", "world_size", "samples", "threads"),
    *("staleness", "best", "split", "memory"),
}
#: Settings of an arm that the plan resolves: the partition of the samples, and the way a model is
#: split.
PLANNED_KEYS = ("split", "partition", "zero", "offload")


def load(folders: Sequence[Path], *, force: bool = False) -> RunData:
    """Read one run folder, or several made from the same plan.

    Args:
        force: read even if a plan was changed; `RunData.changed` then has the reason.

    Raises:
        PlanChanged: a plan is not the one that was frozen.
        UserError: no run folder, one of a newer version, a damaged ``run.json``, or plans that
            differ; the text then names the parts of the plan that do. Other unreadable files are
            listed in `RunData.damage`.
    """
    paths = list(dict.fromkeys(Path(f).resolve() for f in folders))
    if not paths:
        raise UserError("no run folder given; name at least one that `dualml run` wrote")
    return merge([read_run_data(path, force) for path in paths])


class Reader:
    """Caller of functions that read files of the run folder ``run``: it records one line for each
    damaged file instead of raising.

    Attributes:
        damage: the recorded lines, with paths relative to the run folder.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.damage = run, list[str]()

    def __call__(self, read: Callable[..., T], *arguments: Any) -> T | None:
        """Return ``read(*arguments)``; if that raises a `UserError`, add its text to ``damage``
        once and return None. `PlanChanged` is raised."""
        try:
            return read(*arguments)
        except PlanChanged:
            raise
        except UserError as error:
            line = str(error).replace(f"{self.run}/", "")
            self.damage += [line] * (line not in self.damage)
            return None


def read_run_data(folder: Path, force: bool = False) -> RunData:
    """Read the files of one run folder; raise `UserError` if ``run.json`` cannot be read, and
    `PlanChanged` if its plan is not the recorded one, but with ``force`` only note it in
    `RunData.changed`."""
    run, reader = read_run(folder), Reader(folder)
    changed = []
    if (plan_folder(folder) / PLAN.name).exists():
        try:
            reader(restore_plan, plan_folder(folder), run.plan_hash)
        except PlanChanged as error:
            if not force:
                raise
            changed.append(str(error))
    arms = run.experiment.get("arms", {})
    parity = reader(PARITY.read_if_present, folder)
    costs = reader(COST.read_if_present, folder)
    planned = None
    in_plan = any(arm.get(key) for key in PLANNED_KEYS for arm in arms.values())
    if in_plan or run.experiment.get("pretrained"):
        planned = reader(PLAN.read_if_present, plan_folder(folder))
    findings = reader(read_findings, folder) or []
    return RunData(
        folders=(folder,),
        meta=RUN.content(run),
        environment=run.environment,
        trials=tuple(read_trial(folder, trial, arms[trial.arm]) for trial in run.trials),
        **parity_fields(parity),
        cost={} if costs is None else cost_rows(costs),
        **plan_fields(planned),
        findings=tuple(finding.text.describe() for finding in findings),
        damage=tuple(reader.damage),
        changed=tuple(changed),
    )


def read_trial(folder: Path, record: TrialRecord, arm: Mapping[str, Any]) -> Trial:
    """Read one trial from its record and its files; ``arm`` has the settings of its arm. Damaged
    files are listed in `Trial.damage`, and make the status ``unreadable`` if they hold curves or
    measured collectives."""
    place, reader = trial_folder(folder, record.key), Reader(folder)
    n = max(record.world_size, arm.get("world_size", 1))
    curves = reader(read_records, place) or {}
    collectives = None
    if arm.get("kind") == "collectives":
        collectives = reader(COLLECTIVES.read_if_present, place)
    lost = bool(reader.damage)  # what the trial is about
    averages = (arm.get("aggregation") or {}).get("of") == "parameters"
    known, more = record.describe(), dict[str, Any]()
    for name in ("staleness", "best", "split", "memory"):  # tables, as the record has them
        if known.get(name):
            more[name] = freeze_lists(known[name])
    return Trial(
        **{name: freeze_lists(getattr(record, name)) for name in SHARED_FIELDS} | more,
        framework=record.backend,
        status="unreadable" if lost else record.status,
        reason=reader.damage[0] if lost else record.reason or "",
        full_batch=arm.get("batch_size") == 0,
        curves={m: c for m, c in curves.items() if "/" not in m and m not in UNDRAWN_METRICS},
        folder=place,
        world_size=n,
        processes=record.world_size,
        samples=tuple((each.n, each.sha256) for each in record.samples),
        threads=parse_thread_count(record.threads),
        collectives=None if collectives is None else collectives.describe(),
        times=read_rank_columns(reader, TIMES, place, n) if arm.get("slow") else (),
        apart=reader(read_distances, place, n) or () if averages else (),
        timelines=read_timelines(reader, place, n) if arm.get("split") else (),
        usage=read_usages(place, n),
        damage=tuple(reader.damage),
    )


def freeze_lists(value: Any) -> Any:
    """Return a value with tuples in place of lists, also inside lists; tables stay."""
    return tuple(map(freeze_lists, value)) if isinstance(value, list) else value


def parse_thread_count(recorded: str | int | None) -> int | None:
    """Return a recorded number of threads as an integer; None where nothing, or words instead, were
    recorded."""
    text = str(recorded)
    return int(text) if text.isdecimal() else None


def read_rank_columns(
    reader: Reader, file: ColumnFile, place: Path, ranks: int
) -> tuple[Mapping[str, Array], ...]:
    """Read the column file ``file`` of every rank in the trial folder ``place``; empty if a rank
    has none or one is damaged, which ``reader`` then records."""
    if not all(file.path(place, rank).exists() for rank in range(ranks)):
        return ()
    return tuple(reader(file.read_all, place, ranks) or ())


def read_timelines(reader: Reader, place: Path, ranks: int) -> tuple[Mapping[str, Array], ...]:
    """Read every rank's timeline: no events for a rank without a readable one, an empty tuple if no
    rank has any event."""
    none = {name: np.zeros(0) for name in COLUMNS}
    there = [TIMELINE.path(place, rank).exists() for rank in range(ranks)]
    events = [
        (reader(TIMELINE.read, place, rank) if here else None) or none
        for rank, here in enumerate(there)
    ]
    return tuple(events) if any(len(columns["step"]) for columns in events) else ()


def read_usages(place: Path, ranks: int) -> tuple[Usage, ...]:
    """Read the resource usage of every watched process, in the order of ranks; a rank with fewer
    than two readable samples has no entry, and ranks that are threads share one; an entry does not
    say whose it is."""
    found = (summarize_samples(read_usage(place, rank)) for rank in range(ranks))
    return tuple(usage for usage in found if usage is not None)


def read_distances(place: Path, ranks: int) -> tuple[Array, ...]:
    """Read what ranks recorded when they averaged parameters: for each rank an array of rows
    (update, divergence, drift), NaN where one of the two was not recorded; empty if a rank has
    none."""
    rows = []
    for rank in range(ranks):
        records = read_records(place, rank)
        curves = [records[name] for name in UNDRAWN_METRICS if name in records]
        if not curves:
            return ()
        steps = np.unique(np.concatenate([curve.step for curve in curves]))
        rows.append(
            np.stack(
                [steps, *(values_at(steps, records.get(name)) for name in UNDRAWN_METRICS)], axis=1
            )
        )
    return tuple(rows)


def values_at(steps: Array, curve: Curve | None) -> Array:
    """Return the values of a curve at the updates ``steps``, NaN where it has none; all NaN without
    a curve. ``steps`` is sorted and has every update of the curve."""
    values = np.full(len(steps), np.nan)
    if curve is not None:
        values[np.searchsorted(steps, curve.step)] = curve.value
    return values


def parity_fields(parity: ParityRecord | None) -> dict[str, Any]:
    """Return the fields of `RunData` that come from ``parity.json``; without it ``comparisons`` is
    None, not empty."""
    if parity is None:
        return {"comparisons": None, "parity_settings": {}}
    found = restore_verdicts(parity)
    return {
        "comparisons": found.comparisons,
        "serial": found.serial or (),
        "lowered": found.lowered,
        "parity_settings": found.settings,
    }


def cost_rows(costs: CostRecord) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Return ``fits``, ``checks`` and ``slowdowns`` → rows of ``cost.json``, each with
    ``topology``, the network whose links its messages were taken to share."""
    shared = {"topology": costs.topology}
    return {
        name: tuple({**shared, **row.describe()} for row in getattr(costs, name))
        for name in ("fits", "checks", "slowdowns")
    }


def plan_fields(plan: PlanRecord | None) -> dict[str, Any]:
    """Return the fields of `RunData` that come from the plan: partitions, splits, and all models by
    name; empty without a plan."""
    if plan is None:
        return {}
    specs = {**plan.models, plan.model.name: plan.model}
    return {
        "dealt": {key: tuple(each.describe() for each in deal) for key, deal in plan.deals.items()},
        "splits": {name: split.describe() for name, split in plan.splits.items()},
        "models": {name: spec.describe() for name, spec in specs.items()},
    }
