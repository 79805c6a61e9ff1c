"""Sentences about a pair of trials."""

from __future__ import annotations

from dualml.parity.against.pair import RunPair
from dualml.words import Words, numbers


def name_of(pair: RunPair, words: Words) -> str:
    """Return the name of a trial: arm, backend and seed."""
    return words("against.trial", arm=pair.arm, backend=pair.backend, seed=pair.seed)


def place(phase: str, tensor: str | None, words: Words) -> str:
    """Format the place of a difference, such as ``gradient fc1.weight``.

    The loss has no tensor name, because its phase already names it.
    """
    name = f" {tensor}" if tensor and tensor != phase else ""
    return words.either(f"phase.{phase}", phase) + name


def said(pair: RunPair, words: Words) -> str:
    """Describe where a pair diverges, or why it cannot be compared, as a sentence."""
    first = pair.judged.get("first_divergence")
    text = because(pair, words)
    if first:
        text = words(
            "against.first", step=first["step"],
            place=place(first["phase"], first["tensor"], words),
            distance=numbers.scientific(first["distance"]),
            envelope=numbers.scientific(first["envelope"]), ratio=numbers.factor(pair.ratio),
        )  # fmt: skip
        if first["after"]:
            text += words("against.after", after=first["after"])
    return words("against.said", trial=name_of(pair, words), text=text)


def because(pair: RunPair, words: Words) -> str:
    """Describe the reason of a verdict, with the statuses of trials that did not succeed."""
    evidence = pair.judged["evidence"]
    more = [f"{side}: {words.either(f'status.{evidence[side]}', evidence[side])}"
            for side in "AB" if side in evidence]  # fmt: skip
    more += [str(evidence["said"])] if evidence.get("said") else []
    why = words.either(f"reason.{pair.reason}", pair.reason)
    return words("against.because", why=why, said=words.semicolons(more)) if more else why


def shown(pair: RunPair, words: Words) -> str:
    """Return a table cell: where the pair diverges or why it failed; empty if it is inside the
    envelope."""
    if first := pair.judged.get("first_divergence"):
        where = place(first["phase"], first["tensor"], words)
        return words("against.place", step=first["step"], place=where)
    return "" if pair.reason == "inside_envelope" else because(pair, words)


def farthest(worst: RunPair, margin: float, words: Words) -> str:
    """Describe the pair closest to the margin, and how many updates were judged."""
    trained = worst.trials[0]
    judged = {
        "judged": worst.judged["evidence"]["judged_steps"],
        "updates": numbers.quantity(trained.updates if trained else None),
    }
    if not worst.ratio:
        return words("against.exact", **judged)
    phase, far = max(worst.judged["phases"].items(), key=lambda item: item[1]["ratio"])
    return words(
        "against.farthest", **judged, ratio=numbers.factor(worst.ratio),
        margin=f"{margin:g}", trial=name_of(worst, words), step=far["step"],
        place=place(phase, far["tensor"], words),
    )  # fmt: skip
