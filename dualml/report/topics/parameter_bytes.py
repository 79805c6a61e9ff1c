"""Bytes per parameter on one rank: weight, gradient and state, by precision and optimizer."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.closed_memory import CLOSED_FORM_PARTS, mib
from dualml.report.columns import PLACE, Columns, number
from dualml.report.notes import Notes
from dualml.report.sharded_arms import has_sharded_arms
from dualml.report.topics import table_section
from dualml.report.topics.device_memory import ArmMemory, arm_memories

VARY = ("optimizer", "precision", "loss_scale")


def comparable_memories(run: RunData) -> list[ArmMemory]:
    """Return the counted memory of groups of single-rank arms that differ only in optimizer and
    precision; methods and arms that recompute or offload are left out."""
    alone = [
        arm
        for arm, s in run.settings.items()
        if s.kind == "train"
        and s.world_size == 1
        and not s.method
        and s.recompute == "none"
        and s.offload is None
    ]
    groups = (group for group in run.contrast.groups(alone, vary=VARY) if len(group) > 1)
    arms = {arm for group in groups for arm in group}
    return [h for h in arm_memories(run) if h.arm in arms and h.ranks[0].parameters]


def bytes_per_parameter(h: ArmMemory, part: str) -> float | None:
    """Return the bytes of a component per parameter, None if not counted."""
    psi, most = h.ranks[0].parameters, h.max_bytes(part)
    return most / psi if psi and most is not None else None


def total_bytes_per_parameter(h: ArmMemory) -> float:
    """Return the bytes of weights, gradients and state per parameter; components that were not
    counted are 0."""
    return sum(bytes_per_parameter(h, part) or 0.0 for part in CLOSED_FORM_PARTS)


def columns(run: RunData, words: Messages, rows: Sequence[ArmMemory]) -> Columns[ArmMemory]:
    """Return the columns of bytes per parameter by component, beside the closed form."""
    parts = [
        number(words, part, words(f"device_memory.{part}"), "parameter")
        for part in CLOSED_FORM_PARTS
    ]
    return {
        **PLACE,
        "rule_name": lambda h: run.settings[h.arm].optimizer["name"],
        "precision_kind": lambda h: run.settings[h.arm].precision,
        "psi:count": lambda h: h.ranks[0].parameters,
        tuple(parts): lambda h: [bytes_per_parameter(h, part) for part in CLOSED_FORM_PARTS],
        "together:parameter": total_bytes_per_parameter,
        "form_each:parameter": lambda h: h.form.sizes.total if h.form else None,
        "kept:memory": lambda h: mib(h.max_bytes("activations")),
    }


def findings(notes: Notes, run: RunData, rows: Sequence[ArmMemory]) -> None:
    """Add whether counted bytes per parameter match the closed form, and the activation bytes of
    low precision relative to float32."""
    words = notes.words
    for h in rows:
        parts = {
            words(f"device_memory.{part}"): bytes_per_parameter(h, part)
            for part in CLOSED_FORM_PARTS
        }
        if h.form and None not in parts.values():
            key = "off" if h.form.differences else "exact"
            notes.add_per_backend(
                h.backend, key, arm=h.arm, bytes=total_bytes_per_parameter(h), parts=parts
            )
    notes.add_collected()
    for h in rows:
        base = run.contrast.partner(
            h.arm,
            vary=("precision", "loss_scale"),
            where=lambda other: run.settings[other].precision == "fp32",
        )
        other = next((x for x in rows if (x.arm, x.backend) == (base, h.backend)), None)
        if other is None or run.settings[h.arm].precision == "fp32":
            continue
        own, full = h.max_bytes("activations"), other.max_bytes("activations")
        if own and full:
            notes.add("lower", arm=h.arm, backend=h.backend, base=other.arm, share=own / full)


TOPIC = table_section(
    "parameter_bytes",
    10,
    reads=comparable_memories,
    columns=columns,
    findings=findings,
    when=has_sharded_arms,
)
