"""Activation recomputation: the memory it saves, and the time it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Serial
from dualml.experiment.verdict import worst_comparison
from dualml.report import legend, ranks, verdicts
from dualml.report.closed_memory import MIB, mib
from dualml.report.columns import PLACE, Columns, verdict
from dualml.report.confidence import MeanInterval, paired_ratio
from dualml.report.figure import Axis, Figure, LineMark, Panel, SeriesId, TextMark
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.results import ArmResult
from dualml.report.topics import table_section


@dataclass(frozen=True, eq=False)
class RecomputeResult(ArmResult):
    """Activation memory and time of an arm on a backend, relative to ``base``, an arm that keeps
    all activations.

    Attributes:
        base: name of that arm.
    """

    base: str

    @cached_property
    def baseline(self) -> RecomputeResult | None:
        """Result of ``base`` on this backend; None for that arm itself."""
        is_base = self.arm == self.base
        return None if is_base else RecomputeResult(self.run, self.base, self.backend, self.base)

    @cached_property
    def activation_bytes(self) -> int | None:
        """Bytes of activations on the rank that keeps most, in any seed; None if not measured."""
        counts = [r.activations for t in self.trials for r in t.device_memory]
        return max((n for n in counts if n is not None), default=None)

    @property
    def kept_share(self) -> float | None:
        """`activation_bytes` relative to that of ``base``; None if one is unknown."""
        whole = self.baseline.activation_bytes if self.baseline else None
        return (
            self.activation_bytes / whole if self.activation_bytes is not None and whole else None
        )

    @cached_property
    def step_ratio(self) -> MeanInterval | None:
        """Seconds of an update relative to those of ``base``; None if unknown."""
        return paired_ratio(self.steps, self.baseline.steps) if self.baseline else None

    @cached_property
    def judged(self) -> Serial | None:
        """The worst comparison with ``base`` over the seeds; None without one."""
        own = (self.arm, self.backend, self.base)
        return worst_comparison(s for s in self.run.serial if (s.arm, s.backend, s.against) == own)


def groups(run: RunData) -> list[list[str]]:
    """Return groups of two or more training arms that differ only in recomputation; one that keeps
    everything, if there is any, comes first."""
    every = run.contrast.groups(ranks.training_arms(run), vary=("recompute",))
    return [
        sorted(arms, key=lambda arm: run.settings[arm].recompute != "none")
        for arms in every
        if len(arms) > 1
    ]


def recompute_results(run: RunData) -> list[RecomputeResult]:
    """Return the arms of every group that has a base, the base too, on every backend where they
    succeeded."""
    return [
        RecomputeResult(run, arm, backend, arms[0])
        for arms in groups(run)
        if run.settings[arms[0]].recompute == "none"
        for backend in run.backends
        for arm in arms
        if run.select(arm, backend)
    ]


def columns(
    run: RunData, words: Messages, every: Sequence[RecomputeResult]
) -> Columns[RecomputeResult]:
    """Return the columns of the settings, their activations, time and verdict."""
    return {
        **PLACE,
        "recompute": lambda r: format_recompute(run, r.arm),
        "kept:memory": lambda r: mib(r.activation_bytes),
        "kept_share:percent": lambda r: r.kept_share,
        "step:milliseconds": lambda r: r.step,
        "kept_times:relative": lambda r: r.step_ratio,
        "verdict?": lambda r: r.judged and verdict(r.judged, words, why=False),
    }


def figures(run: RunData, words: Messages, every: Sequence[RecomputeResult]) -> Iterator[Figure]:
    """Yield a figure of activation bytes against the time of an update, connected from the arm that
    keeps everything, if both were measured."""
    every = [r for r in every if r.activation_bytes is not None and r.step]
    if not every:
        return
    bases, backends = ({getattr(r, of): None for r in every} for of in ("base", "backend"))
    lines = list[LineMark]()
    for base, backend in ((base, backend) for backend in backends for base in bases):
        own = [
            r
            for r in every
            if (r.base, r.backend) == (base, backend) and r.activation_bytes and r.step
        ]
        own.sort(key=lambda r: -(r.activation_bytes or 0))
        lines.append(
            LineMark(
                [1e3 * r.step.mean for r in own if r.step],
                [(r.activation_bytes or 0) / MIB for r in own],
                SeriesId(backend=backend),
                hints=[r.arm for r in own],
            )
        )
    labels = [
        TextMark(
            1e3 * r.step.mean,
            (r.activation_bytes or 0) / MIB,
            r.arm,
            SeriesId(backend=r.backend),
            dy=-12,
        )
        for r in every
        if r.step
    ]
    panel = Panel(
        [*lines, *labels], Axis(words("axis.update_ms"), low=0), Axis(words("axis.kept"), low=0)
    )
    said = ", ".join(
        f"{r.arm} {r.backend} {numbers.nbytes(r.activation_bytes)} {numbers.ms(r.step.mean)} ms"
        for r in every
        if r.step
    )
    yield build_figure(
        words,
        "recompute",
        [panel],
        legend.colored_backends([*backends]),
        {"values": said},
        width=600,
    )


def format_recompute(run: RunData, arm: str) -> str:
    """Return the recomputation setting as the experiment file states it; names of layers are
    separated by commas."""
    setting = run.settings[arm].recompute
    return setting if isinstance(setting, str) else ", ".join(setting)


def findings(notes: Notes, run: RunData, every: Sequence[RecomputeResult]) -> None:
    """Add the memory that recomputation saves and the time it costs, and whether its results are
    equal."""
    for r in every:
        if r.arm == r.base or r.step_ratio is None:
            continue
        place = {"arm": r.arm, "backend": r.backend, "base": r.base, "times": r.step_ratio.mean}
        if r.kept_share is None:
            notes.add("unseen", **place)
        else:
            notes.add("kept", **place, share=r.kept_share)
    verdicts.add_verdicts(notes, [r.judged for r in every if r.judged is not None])


def uses_recompute(run: RunData) -> bool:
    """Return whether any arm recomputes activations."""
    return any(run.settings[arm].recompute != "none" for arm in ranks.training_arms(run))


TOPIC = table_section(
    "recompute",
    14,
    reads=recompute_results,
    columns=columns,
    figures=figures,
    findings=findings,
    priority=lambda run: 42 * uses_recompute(run),
    when=uses_recompute,
)
