"""A plan on disk, ``plan/``: written once, and verified whenever it is restored."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.common.arrays import read_npz
from dualml.common.errors import UserError
from dualml.common.files import convert_read_errors, write_bytes
from dualml.experiment.fingerprint import arrays_digest, fingerprint_parts, hash_parts
from dualml.experiment.plan import Plan
from dualml.experiment.schema import Experiment
from dualml.experiment.store.jsonfile import JsonFile
from dualml.experiment.store.plan_record import PlanRecord
from dualml.experiment.store.protocol import parse_experiment
from dualml.experiment.store.tensors import WEIGHTS, Arrays
from dualml.parallel.split import traffic
from dualml.parallel.split.plan import SplitPlan

PLAN = JsonFile("plan.json", PlanRecord, version=1)
ORDER = "order.npz"


def plan_folder(run: Path) -> Path:
    """Return the folder of the plan in the run folder ``run``."""
    return run / "plan"


def save_plan(plan: Plan, folder: Path) -> None:
    """Save a plan in ``folder``, which is made if needed, as ``plan.json``, ``weights.safetensors``
    and ``order.npz``, in place of earlier files."""
    folder.mkdir(parents=True, exist_ok=True)
    WEIGHTS.write(folder, plan.weights)
    order = io.BytesIO()
    np.savez_compressed(order, **{k.replace("/", "."): v for k, v in plan.order.items()})
    write_bytes(folder / ORDER, order.getvalue())
    content = {
        "hash": plan.hash,
        "parts": plan.parts,
        "data": plan.data,
        "model": plan.spec.describe(),
        "experiment": plan.experiment.describe(),
        "deals": plan.deals,
        "models": {name: spec.describe() for name, spec in plan.models.items()},
        "splits": describe_splits(plan),
        "initial": plan.initial_file,
    }
    optional = ("deals", "models", "splits", "initial")
    content = {k: v for k, v in content.items() if v or k not in optional}
    PLAN.write(folder, PLAN.make_record(content))


def describe_splits(plan: Plan) -> dict[str, Any]:
    """Return arm → its split plan with the bytes that it sends, for ``plan.json``; arms without a
    split are left out."""
    arms = plan.experiment.arms
    return {
        name: {
            "cut": list(split.cut),
            **traffic.describe(
                split, arms[name].batch_size, lower=arms[name].plan_precision.is_low
            ),
        }
        for name, split in plan.splits.items()
    }


class PlanChanged(UserError):
    """Error: a plan is not the one that was frozen, so the run may have been another experiment."""


def restore_plan(folder: Path, plan_hash: str | None = None) -> Plan:
    """Read a plan back from ``folder`` and verify it against its recorded hashes.

    Args:
        plan_hash: hash in ``run.json``; None: verify the plan only against its own hashes.

    Raises:
        PlanChanged: the plan was changed after it was written, or is not that of ``run.json``.
        UserError: the plan is missing, damaged, or from a newer version.
    """
    record = PLAN.read(folder)
    weights, order, data = WEIGHTS.read(folder), read_order(folder), record.data.describe()
    check_parts(folder, record, {"weights": arrays_digest(weights), "order": arrays_digest(order)})
    experiment = parse_experiment(record.experiment, folder / PLAN.name)
    with convert_read_errors(f"{folder}: not a readable plan"):
        splits = planned_splits(record, experiment)
        parts = fingerprint_parts(
            experiment, record.model, data, weights, order, record.models, splits
        )
    check_parts(folder, record, parts)
    check_hash(folder, parts, plan_hash)
    deals = {key: [each.describe() for each in deal] for key, deal in record.deals.items()}
    models = dict[str, ModelSpec](record.models)
    initial = record.initial.describe() if record.initial else {}
    return Plan(
        experiment, record.model, data, weights, order, parts, deals, models, splits, initial
    )


def check_parts(folder: Path, record: PlanRecord, parts: Mapping[str, str]) -> None:
    """Raise `PlanChanged`, which names ``folder``, if the SHA-256 of one of these ``parts`` is not
    the one in ``record``."""
    changed = [part for part in parts if parts[part] != record.parts.get(part)]
    if changed:
        raise PlanChanged(f"{folder}: the plan was changed after it was made: {', '.join(changed)}")


def check_hash(folder: Path, parts: Mapping[str, str], plan_hash: str | None) -> None:
    """Raise `PlanChanged` if the hash of the parts is not ``plan_hash``, the one in ``run.json``;
    None passes."""
    if plan_hash is not None and (own := hash_parts(parts)) != plan_hash:
        raise PlanChanged(
            f"{folder}: the plan's hash is {own[:12]}, run.json's {plan_hash[:12]}: "
            "one of them was changed, or is of another run"
        )


def planned_splits(record: PlanRecord, experiment: Experiment) -> dict[str, SplitPlan]:
    """Return arm → its split plan, rebuilt as it was frozen, with the cut that was found then."""
    splits = {}
    for name, planned in record.splits.items():
        arm = experiment.arms[name]
        assert arm.split is not None
        frozen = arm.split.model_copy(update={"cut": planned.cut})
        splits[name] = frozen.plan(record.models.get(arm.variant, record.model), arm.world_size)
    return splits


def read_order(folder: Path) -> Arrays:
    """Read `Plan.order`, key → int32 indices; raise `UserError` if the file is missing or
    damaged."""
    return {key.replace(".", "/"): list_ for key, list_ in read_npz(folder / ORDER).items()}
