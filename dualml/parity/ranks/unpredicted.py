"""Mistakes that no array predicts, but that fit which arrays differ and which agree."""

from __future__ import annotations

from dualml.experiment.comparison import Note
from dualml.parity.models.layers import module_name
from dualml.parity.ranks.evidence import RankEvidence
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.state_mistakes import list_names


def count_parts(evidence: RankEvidence) -> int:
    """Return into how many parts more the suspect cuts the batch than the reference: ranks, or
    micro-batches; 1 if into none."""
    reference, suspect = evidence.reference, evidence.suspect
    parts = suspect.ranks * suspect.micro_batches
    whole = reference.ranks * reference.micro_batches
    return parts // whole if parts > whole and parts % whole == 0 else 1


def loss_across_batch(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if outputs agree and the loss does not, where the suspect cuts the batch
    into parts: the loss of a sample then depends on the others of its part."""
    parts = count_parts(evidence)
    if parts < 2 or evidence.names_outside("forward") or not evidence.names_outside("loss"):
        return None
    return RankFinding(0, "loss", {"n": parts}, (), is_predicted=False)


def term_of_few(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if outputs and loss agree, and only some gradients differ, where the suspect
    cuts the batch into parts: a second term of the loss reaches these alone, and is not divided."""
    parts, outside = count_parts(evidence), evidence.names_outside("gradient")
    earlier = evidence.names_outside("forward") or evidence.names_outside("loss")
    if parts < 2 or earlier or not 0 < len(outside) < len(evidence.parameters()):
        return None
    modules = list(dict.fromkeys(module_name(name.rpartition(".")[0]) for name in outside))
    values = {"n": parts, "names": list_names(modules)}
    return RankFinding(0, "gradient", values, tuple(outside), is_predicted=False)


def describe_places(evidence: RankEvidence) -> list[Note]:
    """Return a sentence about which parameters differ, where only the gradients of some do, or only
    the updates, and what comes before agrees; none otherwise."""
    for phase, earlier in (("gradient", ("forward", "loss")), ("update", ("forward", "gradient"))):
        every, outside = evidence.parameters(), evidence.names_outside(phase)
        agree = not any(evidence.names_outside(one) for one in earlier)
        if agree and 0 < len(outside) < len(every):
            values = {"n": len(outside), "all": len(every), "names": list_names(outside)}
            return [Note(f"only_{phase}s", {**values, "step": evidence.step})]
        if outside:
            break
    return []
