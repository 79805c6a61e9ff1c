"""Map software and number types of a published row to the planner's names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dualml.common.errors import UserError
from dualml.planning.cost.link import Link
from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.devices import find_device
from dualml.planning.planner.engine import find_engine
from dualml.planning.planner.request import make_cluster
from dualml.planning.planner.software import training_software
from dualml.planning.planner.training_engine import PrecisionBytes, TrainingEngine
from planner.rows import LOW_PRECISION, PublishedRow

#: Software of a source → the planner's software whose messages overlap as its do, where their names
#: differ. Software that the planner does not know has the nearest of its kind; which one was
#: written down before any of its rows was priced.
KINDS = {
    # Megatron's layers; DeepSpeed's pipeline engine reduces gradients after the last backward pass
    # (deepspeed/runtime/pipe/engine.py, _exec_reduce_grads).
    "megatron-deepspeed": "megatron-2021",
    "fsdp1": "torch",
    "fsdp2": "torch",
    "nanotron": "torch",
    "maxtext": "torch-compile",
    "colossalai": "deepspeed",
    "mindformers": "megatron",
    "aleph-alpha": "megatron-2021",
    "internevo": "deepspeed",
}

#: Bytes of types.
BYTES = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Setting:
    """Settings with which a row is priced.

    Attributes:
        cluster: devices, links, and what the software hides.
        engine: what counts memory.
        precision: bytes of weights, gradients and states.
        fused: whether attention saves no scores.
    """

    cluster: Cluster
    engine: TrainingEngine
    precision: PrecisionBytes
    fused: bool

    @property
    def counts(self) -> tuple[PrecisionBytes, bool, TrainingEngine]:
        """Return what counts memory."""
        return self.precision, self.fused, self.engine


def make_setting(row: PublishedRow) -> Setting:
    """Return what a row is priced with: its own rates and memory where they were published.

    Raises:
        UserError: the planner does not know the device, or has no peak of the type on it.
    """
    engine = find_engine(row.software)
    device = find_device(row.device)
    kind = "fp8" if row.precision in LOW_PRECISION else "mixed"
    if kind not in device.peaks:
        raise UserError(f"{device.name} has no peak in {kind}")
    made = make_cluster(device, row.devices, kind, software=software_name(row))
    given: dict[str, Any] = {}
    if row.overlap:
        given["overlap"] = 1.0
    attention = row.attention if row.attention.startswith("flash") else made.software.attention
    hides = row.async_tp or made.software.tensor
    given["software"] = replace(made.software, tensor=hides, attention=attention)
    if row.memory_limit:
        given["memory"] = row.memory_limit
    if row.hbm:
        given["bandwidth"] = row.hbm
    if row.inside:
        # A device whose links were cut reaches the same share of what is left.
        reached = 1 / made.inside.beta_s_per_byte / device.inside
        given["inside"] = Link(made.inside.alpha_s, 1 / (row.inside * reached))
    if row.between:
        given["between"] = Link(made.between.alpha_s, 1 / row.between)
    names = (row.precision, kind, "mixed")
    precision = next(engine.precisions[name] for name in names if name in engine.precisions)
    fused = row.attention != "stored"
    return Setting(replace(made, **given), engine, keep_types(row, precision), fused)


def keep_types(row: PublishedRow, precision: PrecisionBytes) -> PrecisionBytes:
    """Return bytes of a parameter with the types of a row. Weights kept in 8 bits have only their
    transposes beside them, and states of 16 bits no weights of 32."""
    given: dict[str, Any] = {}
    if row.weights == "fp8":
        given |= {"weights": 1, "copies": 1}
    if row.gradients:
        given["gradients"] = BYTES[row.gradients]
    if row.states == "bf16":
        given["state"] = 2 * BYTES[row.states]
    return replace(precision, **given)


def software_name(row: PublishedRow) -> str:
    """Return the planner's name of what trained a row: its own, or that of its kind, compiled where
    the source says so and the planner tells them apart."""
    known = training_software()
    name = row.software if row.software in known else KINDS.get(row.software, row.software)
    compiled = f"{name}-compile"
    return compiled if "compile" in row.system and compiled in known else name
