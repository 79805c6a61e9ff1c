"""Match the trials of one run with those of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.strict_model import clip_text
from dualml.experiment.store.manifest import Key
from dualml.experiment.store.run_operand import RunOperand


@dataclass(frozen=True)
class TrialMatch:
    """A trial of run A and the trial of run B to compare it with."""

    arms: tuple[str, str]
    backends: tuple[str, str]
    seed: int

    @property
    def keys(self) -> tuple[Key, Key]:
        """Keys (arm, backend, seed) of the two trials."""
        a, b = (
            (arm, backend, self.seed) for arm, backend in zip(self.arms, self.backends, strict=True)
        )
        return a, b


def match_trials(
    a: RunOperand,
    b: RunOperand,
    arms: Sequence[str] | None,
    pairs: Mapping[str, str] | None,
    backends: Sequence[str] | Mapping[str, str] | None,
    seeds: Sequence[int] | None,
) -> Iterator[TrialMatch]:
    """Yield the pairs of trials to compare: arm by arm, each selected trial of A with its partner's
    name.

    B need not have the partner. The arguments are those of `dualml.parity.against.compare_runs`.

    Raises:
        UserError: an arm, backend or seed that A does not have, an arm in ``pairs`` that B does not
            have, or an arm that trains nothing.
    """
    partners = {**{arm: arm for arm in arms or ()}, **(pairs or {})}
    if arms is None and pairs is None:
        partners = {arm: arm for arm, s in a.experiment.arms.items() if s.kind == "train"}
    for arm, partner in partners.items():
        check_known(a, arm, "arm", a.experiment.arms)
        if a.experiment.arms[arm].kind != "train":
            raise UserError(f"arm {arm} trains nothing that could be compared")
        if arm != partner:
            check_known(b, partner, "arm", b.experiment.arms)
    others: Mapping[str, str] = (
        backends if isinstance(backends, Mapping) else {name: name for name in backends or ()}
    )
    here = list(dict.fromkeys(trial.backend for trial in a.run.trials))
    for name in others:
        check_known(a, name, "backend", here)
    known_seeds = sorted({trial.seed for trial in a.run.trials})
    for seed in seeds or ():
        if seed not in known_seeds:
            there = ", ".join(map(str, known_seeds))
            raise UserError(f"{a.folder} has no seed {seed}; there are {there}")
    for arm, partner in partners.items():
        for trial in (t for t in a.run.trials if t.arm == arm):
            if (others and trial.backend not in others) or (seeds and trial.seed not in seeds):
                continue
            other = others.get(trial.backend, trial.backend)
            yield TrialMatch((arm, partner), (trial.backend, other), trial.seed)


def check_known(
    side: RunOperand, name: str, what: str, known: Sequence[str] | Mapping[str, Any]
) -> None:
    """Raise `UserError` with the nearest names if ``name`` is not in ``known``.

    Args:
        side: the run that the message names.
        what: kind of the name, such as ``arm``.
    """
    if name not in known:
        near = did_you_mean(name, known)
        raise UserError(f"{side.folder} has no {what} {clip_text(name)!r}{near}")
