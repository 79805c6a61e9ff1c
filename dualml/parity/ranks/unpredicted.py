"""Mistakes that no array predicts, but that fit which arrays differ and which agree."""

from __future__ import annotations

from dualml.experiment.comparison import Note
from dualml.parity.models.layers import module_name
from dualml.parity.ranks.evidence import RankEvidence
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.state_mistakes import list_names


def count_parts(evidence: RankEvidence) -> int:
    """Return how many times as many parts (ranks times micro-batches) the suspect cuts the batch
    into as the reference; 1 if that is no whole number above 1."""
    reference, suspect = evidence.reference, evidence.suspect
    parts = suspect.ranks * suspect.micro_batches
    whole = reference.ranks * reference.micro_batches
    return parts // whole if parts > whole and parts % whole == 0 else 1


def loss_across_batch(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if outputs agree and the loss does not, and the suspect cuts the batch into
    more parts: the loss of a sample then depends on the other samples of its part. Else None."""
    parts = count_parts(evidence)
    if parts < 2 or evidence.names_outside("forward") or not evidence.names_outside("loss"):
        return None
    return RankFinding(0, "loss", {"n": parts}, (), is_predicted=False)


def term_of_few(evidence: RankEvidence) -> RankFinding | None:
    """Return a finding if outputs and loss agree, only some gradients differ, and the suspect cuts
    the batch into more parts: a second term of the loss reaches these gradients alone, and is not
    divided by the number of parts. Else None."""
    parts, outside = count_parts(evidence), evidence.names_outside("gradient")
    earlier = evidence.names_outside("forward") or evidence.names_outside("loss")
    if parts < 2 or earlier or not 0 < len(outside) < len(evidence.parameters()):
        return None
    modules = list(dict.fromkeys(module_name(name.rpartition(".")[0]) for name in outside))
    values = {"n": parts, "names": list_names(modules)}
    return RankFinding(0, "gradient", values, tuple(outside), is_predicted=False)


def describe_places(evidence: RankEvidence) -> list[Note]:
    """Return a list with one note on which parameters differ, if only the gradients of some do, or
    only the updates of some, and everything before them agrees; empty otherwise."""
    for phase, earlier in (("gradient", ("forward", "loss")), ("update", ("forward", "gradient"))):
        every, outside = evidence.parameters(), evidence.names_outside(phase)
        agree = not any(evidence.names_outside(one) for one in earlier)
        if agree and 0 < len(outside) < len(every):
            values = {"n": len(outside), "all": len(every), "names": list_names(outside)}
            return [Note(f"only_{phase}s", {**values, "step": evidence.step})]
        if outside:
            break
    return []
