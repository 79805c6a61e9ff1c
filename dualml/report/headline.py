"""The answer of the page in one sentence: which arms are equal and which are different."""

from __future__ import annotations

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, Serial
from dualml.experiment.verdict import VERDICTS, worst_verdict
from dualml.report import ranks
from dualml.report.blocks import Tone
from dualml.report.columns import VERDICT_TONES


def headline(run: RunData, words: Messages) -> tuple[Tone, str]:
    """Return tone and sentences: which arms are equal between the frameworks and which differ, then
    how many comparisons with the baseline (per arm, backend and seed) of several ranks, split
    models, recomputation and offloading are equal. The tone is that of the worst verdict."""
    worst, sentence = _frameworks(run, words)
    if not run.judged:
        return VERDICT_TONES[worst] if worst else "muted", sentence
    sentences = []
    for key in ("serial", "serial_split", "serial_recompute", "serial_offload"):
        compared = [s for s in run.judged if comparison_kind(run, s) == key]
        if compared:
            equal = sum(s.verdict == "equal" for s in compared)
            sentences.append(words(f"headline.{key}", equal=equal, n=len(compared)))
    tone = VERDICT_TONES[worst_verdict([worst, *(s.verdict for s in run.judged)])]
    every = [sentence, *sentences] if run.comparisons else sentences  # else one backend
    return tone, words.join_sentences(every)


def is_split_comparison(run: RunData, s: Serial) -> bool:
    """Return whether a comparison is of a split arm of the run, which is compared with the whole
    model."""
    return s.arm in run.arms and ranks.is_split(run, s.arm)


def comparison_kind(run: RunData, s: Serial) -> str:
    """Return what is compared: several ranks or a method with one process (``serial``), a split
    model with the whole one (``serial_split``), one process that recomputes activations with one
    that keeps them (``serial_recompute``), or one that offloads state or weights with one that does
    not (``serial_offload``)."""
    if is_split_comparison(run, s):
        return "serial_split"
    alone = (
        s.arm in run.arms and ranks.world_size(run, s.arm) == 1 and not run.settings[s.arm].method
    )
    if alone and run.settings[s.arm].offload is not None:
        return "serial_offload"
    again = alone and run.settings[s.arm].recompute != "none"
    return "serial_recompute" if again else "serial"


def _frameworks(run: RunData, words: Messages) -> tuple[str, str]:
    """Return worst verdict and sentence of the comparison between frameworks, by the worst verdict
    of each arm; no verdict if nothing was compared. Arms without a planned order count only if
    there are no others."""
    if not run.comparisons:
        return "", words("headline.none" if run.comparisons is None else "headline.empty")
    worst: dict[str, str] = {}
    # Arms without a planned order cannot agree, and are not expected to.
    for c in [c for c in run.comparisons if c.reason != "free_order"] or run.comparisons:
        worst[c.arm] = worst_verdict([worst.get(c.arm), c.verdict])
    parts = []
    for verdict in VERDICTS:
        if arms := [arm for arm in run.arms if worst.get(arm) == verdict]:
            key = f"headline.{verdict.replace(' ', '_')}"
            parts.append(words.plural(key, len(arms), arms=_names(run, arms, words)))
    backends = dict.fromkeys(b for c in run.comparisons for b in (c.a, c.b))
    sentence = words("headline.sentence", backends=backends, verdicts=parts)
    return worst_verdict(worst.values()), sentence


def _names(run: RunData, arms: list[str], words: Messages, most: int = 5) -> str:
    """Return all names of at most ``most`` arms; of more, up to ``most`` of the main group (of all,
    if none is in it) and the number of others."""
    if len(arms) <= most:
        return words.join(arms)
    shown = [arm for arm in arms if arm in run.main_arms()][:most] or arms[:most]
    more = len(arms) - len(shown)
    return words.join([*shown, *([words.count("more", more)] if more else [])])
