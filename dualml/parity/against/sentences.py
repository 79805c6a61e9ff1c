"""Sentences about a pair of trials."""

from __future__ import annotations

from dualml.common.words import Messages, numbers
from dualml.parity.against.pair import RunPair


def trial_name(pair: RunPair, words: Messages) -> str:
    """Return the name of a pair of trials: arm, backend and seed; ``a → b`` where A's and B's
    differ."""
    return words("against.trial", arm=pair.arm, backend=pair.backend, seed=pair.seed)


def format_place(phase: str, tensor: str | None, words: Messages) -> str:
    """Format the place of a difference, such as ``gradient fc1.weight``.

    The loss has no tensor name, because its phase already names it.
    """
    name = f" {tensor}" if tensor and tensor != phase else ""
    return words.get(f"phase.{phase}", phase) + name


def describe_divergence(pair: RunPair, words: Messages) -> str:
    """Describe where a pair diverges, or why it cannot be compared, as a sentence."""
    text = describe_reason(pair, words)
    if first := pair.first:
        text = words(
            "against.first",
            step=first.step,
            place=format_place(first.phase, first.tensor, words),
            distance=numbers.scientific(first.distance),
            envelope=numbers.scientific(first.envelope),
            ratio=numbers.factor(pair.ratio),
        )
        if first.after:
            text += words("against.after", after=first.after)
    return words("against.said", trial=trial_name(pair, words), text=text)


def describe_reason(pair: RunPair, words: Messages) -> str:
    """Describe the reason of a verdict, with the statuses of trials that did not succeed and the
    message of an error."""
    evidence = pair.evidence
    more = [
        f"{side}: {words.get(f'status.{evidence[side]}', evidence[side])}"
        for side in "AB"
        if side in evidence
    ]
    more += [str(evidence["said"])] if evidence.get("said") else []
    why = words.get(f"reason.{pair.reason}", pair.reason)
    return words("against.because", why=why, said=words.semicolons(more)) if more else why


def format_cell(pair: RunPair, words: Messages) -> str:
    """Return a table cell: where the pair first diverges, else the reason of its verdict; empty if
    it is inside the envelope."""
    if first := pair.first:
        where = format_place(first.phase, first.tensor, words)
        return words("against.place", step=first.step, place=where)
    return "" if pair.reason == "inside_envelope" else describe_reason(pair, words)


def describe_worst(worst: RunPair, margin: float, words: Messages) -> str:
    """Return a sentence that names the update and the tensor in which ``worst``, the pair with the
    largest ratio to the envelope, has this ratio, or says that all numbers are equal; and how many
    updates were judged."""
    trained = worst.trials[0]
    judged = {
        "judged": worst.evidence["judged_steps"],
        "updates": numbers.quantity(trained.updates if trained else None),
    }
    if not worst.ratio:
        return words("against.exact", **judged)
    phase, far = max(worst.phases.items(), key=lambda item: item[1]["ratio"])
    return words(
        "against.farthest",
        **judged,
        ratio=numbers.factor(worst.ratio),
        margin=f"{margin:g}",
        trial=trial_name(worst, words),
        step=far["step"],
        place=format_place(phase, far["tensor"], words),
    )
