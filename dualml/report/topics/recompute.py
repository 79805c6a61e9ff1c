"""Activation recomputation: the memory it saves, and the time it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dualml.report import keys, ranks, verdicts
from dualml.report.blocks import Block, Cell, Item
from dualml.report.closed_memory import MIB
from dualml.report.columns import table, verdict
from dualml.report.figure import Axis, Figure, Line, Owner, Panel, Text
from dualml.report.headline import worse_first
from dualml.report.notes import Notes
from dualml.report.results import Result
from dualml.report.shown import figure
from dualml.report.spread import Spread, ratio
from dualml.report.topics import Topic
from dualml.store.run import Run, Serial
from dualml.words import Words, numbers


@dataclass(frozen=True)
class Row:
    """An arm on a backend compared with ``base``, the otherwise equal arm that keeps all
    activations.

    Attributes:
        kept: bytes of activations on the rank that keeps most; None if not measured.
        share: `kept` relative to that of ``base``.
        times: seconds of an update relative to that of ``base``.
        judged: the worst comparison with ``base`` over the seeds; None without one.
    """

    arm: str
    backend: str
    base: str
    kept: int | None
    share: float | None
    step: Spread | None
    times: Spread | None
    judged: Serial | None


def groups(run: Run) -> list[list[str]]:
    """Return groups of arms that differ only in recomputation, the one that keeps everything
    first."""
    every = run.contrast.groups(ranks.training(run), vary=("recompute",))
    return [
        sorted(arms, key=lambda arm: run.settings[arm].recompute != "none")
        for arms in every
        if len(arms) > 1
    ]


def rows(run: Run) -> list[Row]:
    """Return the arms of every group that has a base."""
    return [
        _row(run, arm, backend, arms[0])
        for arms in groups(run)
        if run.settings[arms[0]].recompute == "none"
        for backend in run.backends
        for arm in arms
        if run.select(arm, backend)
    ]


def _row(run: Run, arm: str, backend: str, base: str) -> Row:
    own, other = (Result(run, name, backend) for name in (arm, base))
    kept, all_kept = (most(run, name, backend) for name in (arm, base))
    seeds = [s for s in run.serial if (s.arm, s.backend, s.against) == (arm, backend, base)]
    return Row(
        arm, backend, base, kept,
        share=kept / all_kept if kept is not None and all_kept and arm != base else None,
        step=own.step,
        times=ratio(own.steps, other.steps) if arm != base else None,
        judged=min(seeds, key=lambda s: worse_first(s.verdict), default=None),
    )  # fmt: skip


def most(run: Run, arm: str, backend: str) -> int | None:
    """Return the most bytes of activations on any rank and in any seed, None if not measured."""
    counts = [r.activations for t in run.select(arm, backend) for r in t.device_memory]
    return max((n for n in counts if n is not None), default=None)


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = rows(run)
    if seen := [r for r in every if r.kept is not None and r.step]:
        yield _figure(run, words, seen)
    verdict = ["verdict"] if any(r.judged for r in every) else []
    head = ("`arm`", "backend", "recompute", "kept:memory", "kept_share:percent",
            "step:milliseconds", "kept_times:relative", *verdict)  # fmt: skip
    cells = [
        [r.arm, r.backend, chosen(run, r.arm), None if r.kept is None else r.kept / MIB, r.share,
         r.step, r.times, *(judged(r, words) for _ in verdict)]
        for r in every
    ]  # fmt: skip
    yield from table(words, "recompute", head, cells)


def _figure(run: Run, words: Words, every: Sequence[Row]) -> Figure:
    """Return activations against the time of an update, connected from the arm that keeps
    everything."""
    bases, backends = ({getattr(r, of): None for r in every} for of in ("base", "backend"))
    lines = list[Line]()
    for base, backend in ((base, backend) for backend in backends for base in bases):
        own = [r for r in every if (r.base, r.backend) == (base, backend) and r.kept and r.step]
        own.sort(key=lambda r: -(r.kept or 0))
        lines.append(Line([1e3 * r.step.mean for r in own if r.step],
                          [(r.kept or 0) / MIB for r in own], Owner(backend=backend),
                          hints=[r.arm for r in own]))  # fmt: skip
    labels = [
        Text(1e3 * r.step.mean, (r.kept or 0) / MIB, r.arm, Owner(backend=r.backend), dy=-12)
        for r in every if r.step
    ]  # fmt: skip
    panel = Panel([*lines, *labels], Axis(words("axis.update_ms"), low=0),
                  Axis(words("axis.kept"), low=0))  # fmt: skip
    said = ", ".join(f"{r.arm} {r.backend} {numbers.nbytes(r.kept)} {numbers.ms(r.step.mean)} ms"
                     for r in every if r.step)  # fmt: skip
    return figure(words, "recompute", [panel], keys.colored_backends([*backends]),
                  {"values": said}, width=600)  # fmt: skip


def chosen(run: Run, arm: str) -> str:
    """Return the recomputation setting as the experiment file states it."""
    setting = run.settings[arm].recompute
    return setting if isinstance(setting, str) else ", ".join(setting)


def judged(row: Row, words: Words) -> Cell:
    return Cell(numbers.NONE) if row.judged is None else verdict(row.judged, words, why=False)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, every = Notes(words, "recompute", "table-recompute"), rows(run)
    for r in every:
        if r.arm == r.base or r.times is None:
            continue
        place = {"arm": r.arm, "backend": r.backend, "base": r.base, "times": r.times.mean}
        if r.share is None:
            notes.say("unseen", **place)
        else:
            notes.say("kept", **place, share=r.share)
    compared = [r for r in every if r.judged is not None and r.judged.against == r.base]
    equal = [r for r in compared if r.judged and r.judged.verdict == "equal"]
    if compared:
        notes.say("equal", len(compared), k=len(equal), n=len(compared))
    for r in compared:
        s = r.judged
        if s and s.verdict == "different" and s.first_divergence:
            notes.say("diverged", s=s, **verdicts.place(s.first_divergence, words))
        elif s and s.verdict != "equal":
            notes.warn("open", s=s, reason=words.either(f"reason.{s.reason}", s.reason))
    return notes


def about(run: Run) -> bool:
    """Return whether any arm recomputes activations."""
    return any(run.settings[arm].recompute != "none" for arm in ranks.training(run))


TOPIC = Topic("recompute", 14, evidence, findings, leads=lambda run: 42 * about(run), when=about)
