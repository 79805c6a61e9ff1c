"""Whether ranks train one model: compared weights after updates, and bytes of the combined
gradients."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.agreement import AgreementRecord, is_divergence_reason
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks
from dualml.report.blocks import Cell
from dualml.report.columns import SIGNS, Columns
from dualml.report.notes import Notes
from dualml.report.topics import table_section


def _multi_rank_trials(run: RunData) -> list[Trial]:
    """Return the trials of training arms with several ranks that recorded whether the ranks agree,
    including those that failed because their ranks diverged."""
    arms = [arm for arm in ranks.training_arms(run) if ranks.world_size(run, arm) > 1]
    every = (t for arm in arms for b in run.backends for t in run.select(arm, b, ok=False))
    return [t for t in every if t.agreement is not None or is_divergence_reason(t.reason)]


def columns(run: RunData, words: Messages, trials: Sequence[Trial]) -> Columns[Trial]:
    """Return the columns of the table: what the arm's strategy guarantees, after which updates
    weights were compared, and the bytes sent, measured and by the closed form."""

    def compared(t: Trial) -> Cell:
        if t.agreement is None:
            return Cell(f"{SIGNS['bad']} {t.reason}", "bad")
        return _compared_cell(t.agreement, words)

    return {
        ("`arm`", "backend", "seed:"): lambda t: (t.arm, t.backend, str(t.seed)),
        "ranks:count": lambda t: ranks.world_size(run, t.arm),
        "`strategy`": lambda t: _strategy_name(run, t.arm),
        "promise": lambda t: t.agreement and words(f"promise.{t.agreement.promise}"),
        "compared": compared,
        "sent_together:bytes_update": lambda t: t.agreement and _sent_cell(t.agreement, words),
        "closed_together:bytes_update": lambda t: t.agreement and t.agreement.closed_bytes,
    }


def _strategy_name(run: RunData, arm: str) -> str:
    """Return the name of an arm's strategy, ``split`` for ranks that share one model."""
    if ranks.is_split(run, arm):
        return "split"
    return ranks.strategy(run, arm)


def _compared_cell(agreement: AgreementRecord, words: Messages) -> Cell:
    """Return the cell with the updates after which weights were compared and the largest
    difference; for averaging with neighbours the share of averagings that changed the weights,
    muted if nothing was compared."""
    if agreement.averagings is not None:
        text = words("agreement.averagings", share=numbers.percent(agreement.averagings))
        return Cell(f"{SIGNS['good']} {text}", "good")
    if not agreement.checks:
        return Cell(words("agreement.never"), "muted")
    updates = " · ".join(f"{check.update:,}" for check in agreement.checks)
    apart = max(check.apart for check in agreement.checks)
    if agreement.promise in ("shards", "stages"):
        return Cell(updates, note=words("agreement.own_part"))
    note = words("agreement.rounding", apart=f"{apart:.1g}") if apart else words("agreement.equal")
    return Cell(f"{SIGNS['good']} {updates}", "good", note)


def _sent_cell(agreement: AgreementRecord, words: Messages) -> Cell:
    """Return the cell with the bytes that all ranks sent, muted if that was not measured; noted if
    the engine sends each byte several times."""
    if agreement.sent_bytes is None:
        return Cell(words("agreement.not_seen"), "muted")
    times = agreement.times_sent or 1.0
    twice = words("agreement.times", times=f"{times:.2g}") if round(times) > 1 else ""
    return Cell(numbers.nbytes(agreement.sent_bytes), note=twice)


def findings(notes: Notes, run: RunData, trials: Sequence[Trial]) -> None:
    """Add for each backend which arms' ranks diverged, and how many other arms trained one
    model."""
    for backend in run.backends:
        here = [t for t in trials if t.backend == backend]
        apart = list(dict.fromkeys(t.arm for t in here if is_divergence_reason(t.reason)))
        if apart:
            notes.add("apart", len(apart), backend=backend, arms=", ".join(apart), n=len(apart))
        seen = {t.arm for t in here} - {*apart}
        if seen:
            notes.add("one_model", len(seen), backend=backend, n=len(seen))


TOPIC = table_section(
    "agreement",
    395,
    reads=_multi_rank_trials,
    columns=columns,
    findings=findings,
    when=_multi_rank_trials,
)
