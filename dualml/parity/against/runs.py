"""Compare every trial of a run with its partner in another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dualml.common.errors import UserError, did_you_mean
from dualml.common.strict_model import clip_text
from dualml.experiment.store.baseline import fold_trajectory
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.experiment.store.run_operand import RunOperand, read_run_operand
from dualml.experiment.store.trajectory import PHASES, Trajectory
from dualml.experiment.store.trial_comparison import TrialComparison, convert_comparison
from dualml.experiment.verdict import worst_verdict
from dualml.parity.against.matching import TrialMatch, match_trials
from dualml.parity.against.outcome import RunComparison
from dualml.parity.against.pair import RunPair, diff_environments, diff_settings
from dualml.parity.pairs import LowPrecision, compare_trajectories, low_precision_of
from dualml.parity.refusals import has_other_skips, not_comparable, other_samples
from dualml.parity.statistics import resolve_by_seeds

MARGIN = 10.0
#: Phases that a comparison may leave out; batches and losses always count.
METRICS = tuple(phase for phase in PHASES if phase != "data")


def compare_runs(
    a: str | Path,
    b: str | Path,
    *,
    margin: float = MARGIN,
    arms: Sequence[str] | None = None,
    pairs: Mapping[str, str] | None = None,
    backends: Sequence[str] | Mapping[str, str] | None = None,
    seeds: Sequence[int] | None = None,
    metrics: Sequence[str] | None = None,
    slower: float | None = None,
    more_memory: float | None = None,
) -> RunComparison:
    """Judge run B against run A, trial by trial.

    Args:
        a, b: run folders, or baselines that `dualml baseline` wrote.
        margin: a distance is outside when it exceeds ``margin`` × the rounding envelope.
        arms: only these arms of A.
        pairs: arm of A → arm of B, where the names differ; only these arms are compared, together
            with ``arms``.
        backends: only these backends, or backend of A → backend of B.
        seeds: only these seeds.
        metrics: only these of forward, loss, gradient, update and state; losses always count.
        slower: the largest allowed ratio of B's time per update to A's; a larger one is no error,
            but one of `RunComparison.failures`. None: any.
        more_memory: the largest allowed ratio of B's memory per trial to A's; None: any.

    Raises:
        UserError: not a run folder, one of another version, a changed plan, unknown names, a margin
            or limit that is not a finite number above 0, or nothing that could be compared.
    """
    _check_options(margin, metrics, {"slower": slower, "more_memory": more_memory})
    sides = read_run_operand(Path(a)), read_run_operand(Path(b))
    chosen = list(match_trials(*sides, arms, pairs, backends, seeds))
    if not chosen:
        raise UserError(f"nothing to compare: {a} has no training arm that was asked for")
    kept = METRICS if metrics is None else tuple(metrics)
    judged = _resolve_by_seeds(sides, list(_judge_pairs(sides, chosen, margin, kept)))
    compared = tuple(_make_pair(sides, names, found) for names, found in judged)
    trained = {arm for arm, s in sides[1].experiment.arms.items() if s.kind == "train"}
    met = {names.arms[1] for names in chosen}
    whole = arms is None and pairs is None
    return RunComparison(
        sides=(str(a), str(b)),
        verdict=worst_verdict(pair.verdict for pair in compared),
        runs=(sides[0].run, sides[1].run),
        margin=margin,
        pairs=compared,
        environment=tuple(diff_environments(sides, [names.backends for names in chosen])),
        unmet=tuple(sorted(trained - met)) if whole else (),
        limits={
            name: limit
            for name, limit in (("slower", slower), ("more_memory", more_memory))
            if limit is not None
        },
    )


def _check_options(
    margin: float, metrics: Sequence[str] | None, limits: Mapping[str, float | None]
) -> None:
    """Raise `UserError` for a margin or limit that is not a finite number above 0, or an unknown
    metric."""
    for name, value in {"margin": margin, **limits}.items():
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{name} must be a finite number above 0; received {value}")
    for metric in metrics or ():
        if metric not in METRICS:
            raise UserError(f"unknown metric {clip_text(metric)!r}{did_you_mean(metric, METRICS)}")


def _judge_pairs(
    sides: tuple[RunOperand, RunOperand],
    chosen: Sequence[TrialMatch],
    margin: float,
    metrics: Sequence[str],
) -> Iterator[tuple[TrialMatch, TrialComparison]]:
    """Yield every pair with its verdict, grouped by arm and seed; only the trajectories of one arm
    and seed are in memory at once."""
    groups: dict[tuple[tuple[str, str], int], list[TrialMatch]] = {}
    for names in chosen:
        groups.setdefault((names.arms, names.seed), []).append(names)
    fold = any(side.folded for side in sides)
    for (arms, seed), group in groups.items():
        pairs = zip(sides, arms, strict=True)
        read = [_read_trajectories(side, arm, seed, fold) for side, arm in pairs]
        envelopes = [t.envelope for each in read for t in each.values() if t.envelope]
        for names in group:
            two = [each.get(name) for each, name in zip(read, names.backends, strict=True)]
            yield names, _judge_pair(sides, names, two, envelopes, margin, metrics)


def _read_trajectories(side: RunOperand, arm: str, seed: int, fold: bool) -> dict[str, Trajectory]:
    """Return the trajectories of one arm and seed by backend, of trials that succeeded; with
    ``fold`` in the folded form of a baseline."""
    read = {
        key[1]: side.trajectory(key)
        for key, trial in side.trials.items()
        if key[0] == arm and key[2] == seed and trial.status == "ok"
    }
    if fold and not side.folded:
        read = {backend: fold_trajectory(trajectory) for backend, trajectory in read.items()}
    return read


def _judge_pair(
    sides: tuple[RunOperand, RunOperand],
    names: TrialMatch,
    read: Sequence[Trajectory | None],
    envelopes: list[Envelope],
    margin: float,
    metrics: Sequence[str],
) -> TrialComparison:
    """Judge one pair of trials; trials that cannot be compared get the verdict ``not comparable``
    with a reason.

    Args:
        read: the trajectories of A and B; None for a trial that is missing or failed.
        metrics: phases of tensors that count; losses always do.
    """
    trials = [side.trials.get(key) for side, key in zip(sides, names.keys, strict=True)]
    a, b = trials
    left, right = read
    if a is None or b is None or left is None or right is None:
        statuses = {
            side: trial.status if trial else "missing"
            for side, trial in zip("AB", trials, strict=True)
            if trial is None or trial.status != "ok"
        }
        reasons = [trial.reason for trial in trials if trial and trial.reason]
        evidence = {**statuses, **({"said": reasons[-1]} if reasons else {})}
        return not_comparable("trial_missing", evidence)
    if (refused := _input_mismatch(sides, names, a, b)) is not None:
        return refused
    settings = [side.experiment.arms[arm] for side, arm in zip(sides, names.arms, strict=True)]
    if any(setting.aggregation.arrival == "free" for setting in settings):
        return not_comparable("free_order")
    if has_other_skips(left, right):
        return not_comparable("other_skips")
    precisions = {setting.precision for setting in settings}
    specs = {**sides[0].plan.models, "": sides[0].plan.model}
    lower = low_precision_of(settings[0], specs) if len(precisions) == 1 else None
    if lower and any(side.folded for side in sides):  # sums are not low precision
        lower = LowPrecision(lower.precision, ())
    only = phase_filter(metrics)
    try:
        return compare_trajectories(only(left), only(right), margin, envelopes, lower)
    except UserError as error:  # tensors have different shapes
        return not_comparable("other_shapes", {"said": str(error)})


def _input_mismatch(
    sides: tuple[RunOperand, RunOperand], names: TrialMatch, a: TrialRecord, b: TrialRecord
) -> TrialComparison | None:
    """Return the verdict on two trials of which a frozen input differs, with the reason
    ``other_data``, ``other_weights`` or ``other_samples``; None if none does.

    Where the numbers of ranks or updates differ, samples are not checked here, because their
    fingerprint covers what each rank saw separately; the traced batches are compared later.
    """
    parts = [side.run.plan_parts.get("data") for side in sides]
    if parts[0] != parts[1]:
        return not_comparable("other_data")
    starts = [side.initial_sha256(key) for side, key in zip(sides, names.keys, strict=True)]
    if starts[0] != starts[1]:
        return not_comparable("other_weights")
    alike = (a.world_size, a.updates) == (b.world_size, b.updates)
    return other_samples(a, b) if alike else None


def phase_filter(metrics: Sequence[str]) -> Callable[[Trajectory], Trajectory]:
    """Return a function that returns a trajectory with only the tensors of these phases; its losses
    and batches stay."""
    starts = tuple(f"{metric}/" for metric in metrics)
    return lambda t: replace(
        t, tensors={k: v for k, v in t.tensors.items() if k.startswith(starts)}
    )


def _resolve_by_seeds(
    sides: tuple[RunOperand, RunOperand], found: Sequence[tuple[TrialMatch, TrialComparison]]
) -> Iterator[tuple[TrialMatch, TrialComparison]]:
    """Yield every pair again, with trajectories that are chaotic or nondeterministic judged by
    their test accuracies over all seeds."""
    trials: dict[Key, TrialRecord] = {}
    keyed = []
    for names, judged in found:
        pair = "/".join((*names.arms, *names.backends))
        keyed.append(replace(judged, arms=(pair, pair), sides=("A", "B"), seed=names.seed))
        for label, side, key in zip("AB", sides, names.keys, strict=True):
            if key in side.trials:
                trials[pair, label, names.seed] = side.trials[key]
    matches = [names for names, _ in found]
    yield from zip(matches, resolve_by_seeds(keyed, trials), strict=True)


def _make_pair(
    sides: tuple[RunOperand, RunOperand], names: TrialMatch, judged: TrialComparison
) -> RunPair:
    """Make the result of one pair from its verdict, settings and trials; without settings if B has
    no such arm."""
    settings = diff_settings(sides, names.arms) if names.arms[1] in sides[1].experiment.arms else ()
    return convert_comparison(
        judged,
        RunPair,
        arms=names.arms,
        sides=names.backends,
        seed=names.seed,
        settings=tuple(settings),
        trials=tuple(side.trials.get(key) for side, key in zip(sides, names.keys, strict=True)),
    )
