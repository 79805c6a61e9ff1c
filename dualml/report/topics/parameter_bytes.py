"""Bytes per parameter on one rank: weight, gradient and state, by precision and optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Column, Item
from dualml.report.closed_memory import KNOWN, MIB
from dualml.report.columns import number, table
from dualml.report.notes import Notes
from dualml.report.sharing import about
from dualml.report.topics import Topic
from dualml.report.topics.device_memory import Held, held
from dualml.store.run import Run
from dualml.words import Words

VARY = ("optimizer", "precision", "loss_scale")


def counted(run: Run) -> list[Held]:
    """Return the memory of groups of single-rank arms that differ only in optimizer and
    precision."""
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
    return [h for h in held(run) if h.arm in arms and h.ranks[0].parameters]


def each(h: Held, part: str) -> float | None:
    """Return the bytes of a component per parameter, None if not counted."""
    psi, most = h.ranks[0].parameters, h.most(part)
    return most / psi if psi and most is not None else None


def together(h: Held) -> float:
    """Return the bytes of weights, gradients and state per parameter."""
    return sum(each(h, part) or 0.0 for part in KNOWN)


def evidence(run: Run, words: Words) -> Iterator[Block]:
    parts = [number(words, part, words(f"device_memory.{part}"), "parameter") for part in KNOWN]
    head: list[str | Column] = ["`arm`", "backend", "rule_name", "precision_kind", "psi:count"]
    head += [*parts, "together:parameter", "form_each:parameter", "kept:memory"]
    rows = []
    for h in counted(run):
        activations, settings = h.most("activations"), run.settings[h.arm]
        form = sum(h.form.each(part) for part in KNOWN) if h.form else None
        rows.append(
            [h.arm, h.backend, settings.optimizer["name"], settings.precision,
             h.ranks[0].parameters, *(each(h, part) for part in KNOWN), together(h), form,
             None if activations is None else activations / MIB]
        )  # fmt: skip
    yield from table(words, "parameter_bytes", head, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, rows = Notes(words, "parameter_bytes", "table-parameter_bytes"), counted(run)
    for h in rows:
        parts = {words(f"device_memory.{part}"): each(h, part) for part in KNOWN}
        if h.form and None not in parts.values():
            key = "off" if h.form.off else "exact"
            notes.share(h.backend, key, arm=h.arm, bytes=together(h), parts=parts)
    notes.close()
    for h in rows:
        base = run.contrast.partner(
            h.arm, vary=("precision", "loss_scale"),
            where=lambda other: run.settings[other].precision == "fp32",
        )  # fmt: skip
        other = next((x for x in rows if (x.arm, x.backend) == (base, h.backend)), None)
        if other is None or run.settings[h.arm].precision == "fp32":
            continue
        own, full = h.most("activations"), other.most("activations")
        if own and full:
            notes.say("lower", arm=h.arm, backend=h.backend, base=other.arm, share=own / full)
    return notes


TOPIC = Topic("parameter_bytes", 10, evidence, findings, when=about)
