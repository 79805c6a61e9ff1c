"""Merging of several run folders of one plan into one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dualml.common.errors import UserError
from dualml.experiment.store.run import RunData, Serial, Trial, TrialComparison

C = TypeVar("C", bound=TrialComparison)


def merge(runs: Sequence[RunData]) -> RunData:
    """Merge runs, at least one, into one: all their trials and comparisons, where a backend that
    several of them have is labelled with its run folder's name. A single run is returned as it is.

    Raises:
        UserError: the plans differ; the text names the parts that do.
    """
    for other in runs[1:]:
        check_same_plan(runs[0], other)
    if len(runs) == 1:
        return runs[0]
    labels = shortest_labels([run.folders[0] for run in runs])
    homes = Counter(name for run in runs for name in {t.backend for t in run.trials})
    environment: dict[str, Mapping[str, Any]] = {}
    trials: list[Trial] = []
    comparisons: list[TrialComparison] = []
    settings: Mapping[str, Any] = {}
    serial: list[Serial] = []
    lowered: list[Serial] = []
    costs: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for run, label in zip(runs, labels, strict=True):
        shown = {n: n if count == 1 else f"{n} ({label})" for n, count in homes.items()}
        environment |= {shown.get(n, n): e for n, e in run.environment.items()}
        trials += [replace(t, backend=shown[t.backend]) for t in run.trials]
        comparisons += [relabel(c, shown) for c in run.comparisons or ()]
        serial += [relabel(c, shown) for c in run.serial]
        lowered += [relabel(c, shown) for c in run.lowered]
        for key, rows in run.cost.items():
            named = [{**row, "backend": shown.get(row["backend"], row["backend"])} for row in rows]
            costs[key] = (*costs.get(key, ()), *named)
        settings = settings or run.parity_settings
    known = any(run.comparisons is not None for run in runs)
    return RunData(
        folders=tuple(run.folders[0] for run in runs),
        meta=runs[0].meta,
        environment=environment,
        trials=tuple(trials),
        comparisons=tuple(comparisons) if known else None,
        parity_settings=settings,
        serial=tuple(serial),
        lowered=tuple(lowered),
        cost=costs,
        dealt=next((run.dealt for run in runs if run.dealt), {}),
        splits=next((run.splits for run in runs if run.splits), {}),
        models=next((run.models for run in runs if run.models), {}),
        findings=tuple(text for run in runs for text in run.findings),
        damage=tuple(line for run in runs for line in run.damage),
        changed=tuple(line for run in runs for line in run.changed),
    )


def relabel(comparison: C, shown: Mapping[str, str]) -> C:
    """Return a copy of a comparison with its backends named as ``shown`` (backend → displayed name)
    says."""
    a, b = (shown.get(name, name) for name in comparison.sides)
    return replace(comparison, sides=(a, b))


def check_same_plan(a: RunData, b: RunData) -> None:
    """Raise `UserError`, with the parts of the plan that differ, unless both runs have the same
    plan hash, which must not be missing."""
    if a.meta.get("plan_hash") == b.meta.get("plan_hash") and a.meta.get("plan_hash"):
        return
    parts, others = (r.meta.get("plan_parts") or {} for r in (a, b))
    differ = [key for key in {**parts, **others} if parts.get(key) != others.get(key)]
    names = [str(r.folders[0]) for r in (a, b)]
    raise UserError(
        f"{names[0]} and {names[1]} were made from different plans "
        f"({str(a.meta.get('plan_hash'))[:12]} and {str(b.meta.get('plan_hash'))[:12]}); "
        f"they differ in: {', '.join(differ) or 'the whole plan'}. "
        "Run both with the same experiment, --set, --seed and --data, or report on each alone"
    )


def shortest_labels(paths: Sequence[Path]) -> list[str]:
    """Return the shortest trailing parts of the paths, all of one length, by which they can be told
    apart; whole paths if nothing does."""
    for depth in range(1, max(len(p.parts) for p in paths) + 1):
        names = ["/".join(p.parts[-depth:]) for p in paths]
        if len(set(names)) == len(names):
            return names
    return [str(p) for p in paths]
