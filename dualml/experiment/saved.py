"""A plan on disk, written once and verified whenever it is read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

from dualml.errors import UserError
from dualml.experiment.fingerprint import parts_of
from dualml.experiment.plan import Plan
from dualml.experiment.schema import Arm, Experiment
from dualml.files import read_json, readable, write_bytes, write_json
from dualml.model.spec import ModelSpec
from dualml.split.plan import SplitPlan

FORMAT = 1


def save(plan: Plan, folder: Path) -> None:
    """Write ``plan.json``, ``weights.safetensors`` and ``order.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "weights.safetensors", pack(plan.weights))
    order = io.BytesIO()
    np.savez_compressed(order, **{k.replace("/", "."): v for k, v in plan.order.items()})
    write_bytes(folder / "order.npz", order.getvalue())
    write_json(
        folder / "plan.json",
        {
            "format": FORMAT,
            "hash": plan.hash,
            "parts": plan.parts,
            "data": plan.data,
            "model": plan.spec.describe(),
            "experiment": plan.experiment.describe(),
            **({"deals": plan.deals} if plan.deals else {}),
            **(
                {"models": {n: s.describe() for n, s in plan.models.items()}} if plan.models else {}
            ),
            **({"splits": described(plan)} if plan.splits else {}),
        },
    )


def described(plan: Plan) -> dict[str, Any]:
    """The split plans with their bytes, for readers of ``plan.json``."""
    arms = plan.experiment.arms
    return {
        name: {"cut": list(split.cut), **split.describe(arms[name].batch_size)}
        for name, split in plan.splits.items()
    }


def split_of(arm: Arm, spec: ModelSpec, told: Mapping[str, Any]) -> SplitPlan:
    """A split plan as it was frozen: with the cut that was found then."""
    assert arm.split is not None
    return arm.split.model_copy(update={"cut": told["cut"]}).plan(spec, arm.world_size)


def restore(folder: Path) -> Plan:
    """Read a plan back and verify its hash.

    Raises:
        UserError: missing, from a newer version, or changed since it was written.
    """
    with readable(f"{folder}: not a readable plan"):
        told = read_json(folder / "plan.json")
        weights = load_file(folder / "weights.safetensors")
        with np.load(folder / "order.npz", allow_pickle=False) as packed:
            order = {key.replace(".", "/"): packed[key] for key in packed.files}
        form = int(told["format"])
        if form <= FORMAT:
            experiment = Experiment.model_validate(told["experiment"])
            spec = ModelSpec.restore(told["model"])
            models = {n: ModelSpec.restore(m) for n, m in told.get("models", {}).items()}
            arms = experiment.arms
            splits = {
                name: split_of(arms[name], models.get(arms[name].model, spec), frozen)
                for name, frozen in told.get("splits", {}).items()
            }
            parts = parts_of(experiment, spec, told["data"], weights, order, models, splits)
            changed = [part for part in parts if parts[part] != told["parts"].get(part)]
    if form > FORMAT:
        raise UserError(f"{folder}: plan format {form} is newer than {FORMAT}; update dualml")
    if changed:
        raise UserError(f"{folder}: the plan was changed after it was made: {', '.join(changed)}")
    deals = told.get("deals", {})
    return Plan(experiment, spec, told["data"], weights, order, parts, deals, models, splits)
