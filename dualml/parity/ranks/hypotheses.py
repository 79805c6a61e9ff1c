"""Known mistakes of training on several ranks, and what each predicts from the recorded arrays.

Each hypothesis is tested on the traces: it says which number of the training a factor is, how the
contributions of ranks were weighted, or how fast a schedule runs, and predicts the arrays that
differ. Only what is predicted up to rounding is said. To add a mistake, add a row and a sentence in
both languages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dualml.experiment.comparison import Note
from dualml.parity.ranks.clipping import (
    clipped_by_group,
    clipped_by_value,
    clipped_to_other_norm,
    clipped_while_scaled,
    clipped_with_other_term,
    raised_to_norm,
    unscaled_otherwise,
    unscaled_twice,
)
from dualml.parity.ranks.contributions import (
    clipped_before_reduction,
    mean_of_means,
    not_reduced,
    part_undivided,
)
from dualml.parity.ranks.evidence import RankEvidence
from dualml.parity.ranks.factors import (
    RankFinding,
    clipped_norm,
    divided_by_full_window,
    divided_by_ranks,
    divided_micro_batches,
    explain_factor,
    loss_scale_left,
    other_token_count,
    summed_micro_batches,
    summed_over_batch,
    summed_over_ranks,
    unknown_factor,
)
from dualml.parity.ranks.pass_mistakes import (
    last_micro_batch,
    never_cleared,
    other_pass_kept,
    some_micro_batches,
)
from dualml.parity.ranks.schedules import (
    explain_rates,
    never_stepped,
    other_rates,
    rate_times_ranks,
    stepped_first,
    stepped_per_micro_batch,
    stepped_per_process,
    stepped_too_often,
)
from dualml.parity.ranks.settings import exchanged_settings, other_settings
from dualml.parity.ranks.sharded_mistakes import (
    bias_per_rank,
    buffers_apart,
    clipped_by_own_norm,
    counted_copies,
    statistics_per_rank,
)
from dualml.parity.ranks.state_mistakes import (
    average_followed_often,
    average_of_other_decay,
    buffers_never_change,
    optimizer_begins_anew,
    rate_in_momentum,
    statistics_updated_twice,
    updated_without_gradient,
)
from dualml.parity.ranks.unpredicted import loss_across_batch, term_of_few

#: Names of parameters in a sentence.
MAX_NAMES = 4
#: Other explanations that are named beside the best.
MAX_OTHERS = 2


@dataclass(frozen=True)
class RankHypothesis:
    """A mistake that could explain how two traces differ.

    Attributes:
        key: key of its sentence, which is the message ``note.ranks_KEY``.
        test: called with the evidence, returns what the mistake explains; None if it predicts none
            of the differing arrays.
        cost: how little the hypothesis says: of two that explain equally much, the one of smaller
            cost is preferred.
    """

    key: str
    test: Callable[[RankEvidence], RankFinding | None]
    cost: int = 0


def factor_hypothesis(
    key: str, meaning: Callable[[RankEvidence, float], dict[str, Any] | None], cost: int
) -> RankHypothesis:
    """Return the hypothesis that all gradients of the suspect are the reference's times one factor,
    which ``meaning`` recognises, see `explain_factor`."""
    return RankHypothesis(key, partial(explain_factor, find_meaning=meaning), cost)


def rate_hypothesis(
    key: str,
    meaning: Callable[[RankEvidence, list[float], list[float]], dict[str, Any] | None],
    cost: int,
) -> RankHypothesis:
    """Return the hypothesis that the learning rates of both sides differ in a way that ``meaning``
    recognises, see `explain_rates`."""
    return RankHypothesis(key, partial(explain_rates, find_meaning=meaning), cost)


HYPOTHESES = (
    RankHypothesis("not_reduced", not_reduced),
    RankHypothesis("mean_of_means", mean_of_means),
    RankHypothesis("part_undivided", part_undivided),
    RankHypothesis("last_micro_batch", last_micro_batch),
    RankHypothesis("some_micro_batches", some_micro_batches),
    RankHypothesis("never_cleared", never_cleared),
    RankHypothesis("other_pass_kept", other_pass_kept),
    RankHypothesis("clipped_before_reduction", clipped_before_reduction),
    RankHypothesis("unscaled_twice", unscaled_twice),
    RankHypothesis("unscaled_otherwise", unscaled_otherwise),
    RankHypothesis("clipped_while_scaled", clipped_while_scaled),
    RankHypothesis("clipped_by_group", clipped_by_group),
    RankHypothesis("clipped_by_value", clipped_by_value),
    RankHypothesis("clipped_with_other_term", clipped_with_other_term),
    RankHypothesis("clipped_to_other_norm", clipped_to_other_norm, cost=2),
    RankHypothesis("raised_to_norm", raised_to_norm, cost=1),
    RankHypothesis("clipped_by_own_norm", clipped_by_own_norm),
    RankHypothesis("counted_copies", counted_copies),
    RankHypothesis("bias_per_rank", bias_per_rank),
    RankHypothesis("statistics_per_rank", statistics_per_rank),
    RankHypothesis("buffers_apart", buffers_apart, cost=1),
    RankHypothesis("buffers_never_change", buffers_never_change),
    RankHypothesis("statistics_updated_twice", statistics_updated_twice),
    RankHypothesis("average_followed_often", average_followed_often),
    RankHypothesis("average_of_other_decay", average_of_other_decay, cost=1),
    RankHypothesis("optimizer_begins_anew", optimizer_begins_anew),
    RankHypothesis("updated_without_gradient", updated_without_gradient),
    RankHypothesis("rate_in_momentum", rate_in_momentum),
    RankHypothesis("exchanged_settings", exchanged_settings),
    RankHypothesis("other_settings", other_settings, cost=1),
    RankHypothesis("loss_across_batch", loss_across_batch, cost=9),
    RankHypothesis("term_of_few", term_of_few, cost=9),
    factor_hypothesis("summed_over_ranks", summed_over_ranks, 1),
    factor_hypothesis("divided_by_ranks", divided_by_ranks, 1),
    factor_hypothesis("summed_micro_batches", summed_micro_batches, 1),
    factor_hypothesis("divided_micro_batches", divided_micro_batches, 1),
    factor_hypothesis("divided_by_full_window", divided_by_full_window, 1),
    factor_hypothesis("other_token_count", other_token_count, 2),
    factor_hypothesis("summed_over_batch", summed_over_batch, 2),
    factor_hypothesis("loss_scale_left", loss_scale_left, 2),
    factor_hypothesis("clipped_norm", clipped_norm, 3),
    factor_hypothesis("unknown_factor", unknown_factor, 9),
    rate_hypothesis("stepped_per_process", stepped_per_process, 0),
    rate_hypothesis("stepped_per_micro_batch", stepped_per_micro_batch, 0),
    rate_hypothesis("stepped_too_often", stepped_too_often, 1),
    rate_hypothesis("stepped_first", stepped_first, 1),
    rate_hypothesis("never_stepped", never_stepped, 1),
    rate_hypothesis("rate_times_ranks", rate_times_ranks, 1),
    rate_hypothesis("other_rates", other_rates, 9),
)


@dataclass(frozen=True)
class TestedHypothesis:
    """A hypothesis that explains some of the differing arrays.

    Attributes:
        finding: what it explains.
        evidence: the two sides, of which the suspect has the mistake.
    """

    hypothesis: RankHypothesis
    finding: RankFinding
    evidence: RankEvidence

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Sort key, the best hypothesis first: most arrays explained, then smallest cost, then the
        suspect with more ranks."""
        ranks = self.evidence.suspect.ranks
        return -self.finding.explained, self.hypothesis.cost, -ranks

    def make_note(self) -> Note:
        """Return the note of the hypothesis's sentence, with the names of both sides."""
        sides = {
            "suspect": self.evidence.suspect.name,
            "reference": self.evidence.reference.name,
        }
        return Note(f"ranks_{self.hypothesis.key}", {**sides, **self.finding.values})


def run_hypotheses(
    evidences: Sequence[RankEvidence], table: Sequence[RankHypothesis] = HYPOTHESES
) -> list[TestedHypothesis]:
    """Return the hypotheses that explain arrays, the best one first; each once, with the evidence
    that it explains best.

    Args:
        evidences: the same two sides with either one as the suspect.
    """
    found = [
        TestedHypothesis(one, finding, evidence)
        for one in table
        for evidence in evidences
        if (finding := one.test(evidence)) is not None
    ]
    best: dict[str, TestedHypothesis] = {}
    for one in sorted(found, key=lambda each: each.sort_key):
        best.setdefault(one.hypothesis.key, one)
    return list(best.values())


def describe_hypotheses(tested: Sequence[TestedHypothesis]) -> list[Note]:
    """Return notes about the best hypothesis, how it was tested, and which parameters it concerns,
    and about up to `MAX_OTHERS` others that say as much, or explain another phase; empty if there
    is none.

    Args:
        tested: the hypotheses, the best one first.
    """
    if not tested:
        return []
    best, evidence = tested[0], tested[0].evidence
    differing = len(evidence.names_outside(best.finding.phase))
    notes = [best.make_note()]
    counts = {"n": best.finding.explained, "all": differing, "step": evidence.step}
    if not best.finding.is_predicted:
        notes.append(Note("ranks_untested"))
    elif best.finding.phase == "gradient":
        notes.append(Note("ranks_tested", counts))
        every, outside = evidence.parameters(), evidence.names_outside("gradient")
        if 0 < len(outside) < len(every):
            shown = ", ".join(outside[:MAX_NAMES])
            concerned = {"n": len(outside), "all": len(every), "names": shown}
            notes.append(Note("ranks_concerned", concerned))
    elif best.finding.phase == "update":
        notes.append(Note("ranks_tested_updates", counts))
    else:
        notes.append(Note("ranks_tested_arrays", counts))
    others = [
        one
        for one in tested[1:]
        if one.hypothesis.cost <= best.hypothesis.cost or one.finding.phase != best.finding.phase
    ]
    return [*notes, *(one.make_note() for one in others[:MAX_OTHERS] if one.hypothesis.cost < 9)]
