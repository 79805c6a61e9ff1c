"""Run folders as `docs/run-folder.md` defines them → one `Run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualml.errors import UserError
from dualml.finder.record import read as read_findings
from dualml.report.model import Comparison, Curve, Run, Serial, Trial
from dualml.report.parts import apart, collectives, deals, moments, splits, timelines

FORMAT = 1
COSTS = ("fits", "checks", "slowdowns")
#: Records that are no curve of one value at each update.
OTHERS = ("class_accuracy", "divergence", "drift")


def load(folders: Sequence[Path]) -> Run:
    """Read one run folder, or several made from the same plan.

    Raises:
        UserError: no run folder, an unknown format, an unreadable file, or plans that differ; the
            text then names the parts of the plan that do.
    """
    paths = list(dict.fromkeys(Path(f).resolve() for f in folders))
    if not paths:
        raise UserError("no run folder given; name at least one that `dualml run` wrote")
    runs = [_read(path) for path in paths]
    for other in runs[1:]:
        _same_plan(runs[0], other)
    return runs[0] if len(runs) == 1 else _merge(runs)


def _read(folder: Path) -> Run:
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} has no run.json; give a folder that `dualml run` wrote")
    meta = _json(folder / "run.json")
    parity = _json(folder / "parity.json") if (folder / "parity.json").is_file() else None
    arms = (meta.get("experiment") or {}).get("arms") or {}
    comparisons = None
    if parity is not None:
        comparisons = tuple(_comparison(c) for c in parity.get("comparisons") or [])
    costs = _json(folder / "cost.json") if (folder / "cost.json").is_file() else {}
    split = any(arm.get("split") is not None for arm in arms.values())
    plans, models = splits(folder) if split else ({}, {})
    return Run(
        folders=(folder,),
        meta=meta,
        environment=meta.get("environment") or {},
        trials=tuple(_trial(folder, t, arms) for t in meta.get("trials") or []),
        comparisons=comparisons,
        parity_settings=(parity or {}).get("settings") or {},
        serial=tuple(_serial(s) for s in (parity or {}).get("serial") or []),
        cost={key: tuple(_costs(costs, key)) for key in COSTS} if costs else {},
        dealt=deals(folder) if any(arm.get("partition") for arm in arms.values()) else {},
        splits=plans,
        models=models,
        findings=tuple(found["text"] for found in read_findings(folder)),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    found = value.get("format") if isinstance(value, dict) else None
    if not isinstance(found, int) or found < 1:
        raise UserError(f"{path} carries no format number; it was not written by `dualml run`")
    if found > FORMAT:
        raise UserError(
            f"{path} has format {found}, this dualml reads up to {FORMAT}; "
            "upgrade dualml to report on it"
        )
    return dict(value)


def _trial(folder: Path, raw: Mapping[str, Any], arms: Mapping[str, Any]) -> Trial:
    arm, backend, seed = str(raw.get("arm")), str(raw.get("backend")), int(raw.get("seed") or 0)
    numbers = {
        key: raw.get(key)
        for key in (
            *("wall_s", "train_s", "final_loss", "train_accuracy", "test_accuracy"),
            *("updates", "sample_gradients", "peak_memory_mb"),
        )
    }
    set_up, place = arms.get(arm) or {}, folder / "trials" / arm / backend / f"seed{seed}"
    size = int(raw.get("world_size") or set_up.get("world_size") or 1)
    averages = (set_up.get("aggregation") or {}).get("of") == "parameters"
    return Trial(
        arm=arm,
        backend=backend,
        framework=backend,
        seed=seed,
        status=str(raw.get("status")),
        reason=str(raw.get("reason") or ""),
        how=raw.get("how") or {},
        full_batch=set_up.get("batch_size") == 0,
        curves=_curves(place / "rank0.jsonl"),
        world_size=size,
        threads=int(told) if (told := str(raw.get("threads", ""))).isdecimal() else None,
        ranks=tuple(raw.get("ranks") or ()),
        communication_share=raw.get("communication_share"),
        staleness=raw.get("staleness"),
        collectives=collectives(place) if set_up.get("kind") == "collectives" else None,
        times=moments(place, size) if set_up.get("slow") else (),
        class_accuracy=tuple(raw.get("class_accuracy") or ()),
        test_perplexity=raw.get("test_perplexity"),
        samples_sha256=str(raw.get("samples_sha256") or ""),
        apart=apart(place, size) if averages else (),
        split=raw.get("split") or {},
        memory=tuple(raw.get("memory") or ()),
        timelines=timelines(place, size) if set_up.get("split") is not None else (),
        **numbers,
    )


def _curves(path: Path) -> dict[str, Curve]:
    """Metric → curve; an absent file is a trial that recorded nothing."""
    if not path.is_file():
        return {}
    rows: dict[str, list[tuple[float, ...]]] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            r = json.loads(line)
            if r["metric"] in OTHERS:
                continue
            keys = ("step", "value", "epochs", "seconds")
            row = tuple(np.nan if r.get(k) is None else float(r[k]) for k in keys)
            rows.setdefault(r["metric"], []).append(row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):  # the worker was killed while it wrote
                break
            raise UserError(f"{path}, line {number} is not a record: {error}") from None
    return {
        metric: Curve(*np.asarray(sorted(found), dtype=np.float64).T)
        for metric, found in rows.items()
    }


def _comparison(raw: Mapping[str, Any]) -> Comparison:
    return Comparison(
        arm=str(raw.get("arm")),
        seed=int(raw.get("seed") or 0),
        a=str(raw.get("a")),
        b=str(raw.get("b")),
        verdict=str(raw.get("verdict")),
        reason=str(raw.get("reason") or ""),
        evidence=raw.get("evidence") or {},
        steps=int(raw.get("steps") or 0),
        phases=raw.get("phases") or {},
        first_divergence=raw.get("first_divergence"),
        curve=raw.get("curve") or {},
        outcome=raw.get("outcome") or {},
    )


def _costs(costs: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Rows of ``cost.json``, each with what the messages were taken to share."""
    shared = {"topology": costs.get("topology") or "flat"}
    return [{**shared, **row, "backend": str(row.get("backend"))} for row in costs.get(key) or ()]


def _serial(raw: Mapping[str, Any]) -> Serial:
    backend = raw.get("backend")
    told = _comparison({**raw, "a": backend, "b": backend, "verdict": raw.get("verdict") or ""})
    return Serial(**vars(told), against=str(raw.get("against")))


def _same_plan(a: Run, b: Run) -> None:
    if a.meta.get("plan_hash") == b.meta.get("plan_hash") and a.meta.get("plan_hash"):
        return
    mine, theirs = (r.meta.get("plan_parts") or {} for r in (a, b))
    differ = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
    names = [str(r.folders[0]) for r in (a, b)]
    raise UserError(
        f"{names[0]} and {names[1]} were made from different plans "
        f"({str(a.meta.get('plan_hash'))[:12]} and {str(b.meta.get('plan_hash'))[:12]}); "
        f"they differ in: {', '.join(differ) or 'the whole plan'}. "
        "Run both with the same experiment, --set, --seed and --data, or report on each alone"
    )


def _merge(runs: Sequence[Run]) -> Run:
    """Trials side by side; a backend present in several folders is shown with its folder's name."""
    labels = _labels([run.folders[0] for run in runs])
    homes: dict[str, int] = {}
    for run in runs:
        for name in {t.backend for t in run.trials}:
            homes[name] = homes.get(name, 0) + 1
    environment: dict[str, Mapping[str, Any]] = {}
    trials: list[Trial] = []
    comparisons: list[Comparison] = []
    settings: Mapping[str, Any] = {}
    serial: list[Serial] = []
    costs: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for run, label in zip(runs, labels, strict=True):
        shown = {n: n if count == 1 else f"{n} ({label})" for n, count in homes.items()}
        environment |= {shown.get(n, n): e for n, e in run.environment.items()}
        trials += [replace(t, backend=shown[t.backend]) for t in run.trials]
        comparisons += [
            replace(c, a=shown.get(c.a, c.a), b=shown.get(c.b, c.b)) for c in run.comparisons or ()
        ]
        serial += [replace(s, a=shown.get(s.a, s.a), b=shown.get(s.b, s.b)) for s in run.serial]
        for key, rows in run.cost.items():
            named = [{**row, "backend": shown.get(row["backend"], row["backend"])} for row in rows]
            costs[key] = (*costs.get(key, ()), *named)
        settings = settings or run.parity_settings
    known = any(run.comparisons is not None for run in runs)
    return Run(
        folders=tuple(run.folders[0] for run in runs),
        meta=runs[0].meta,
        environment=environment,
        trials=tuple(trials),
        comparisons=tuple(comparisons) if known else None,
        parity_settings=settings,
        serial=tuple(serial),
        cost=costs,
        dealt=next((run.dealt for run in runs if run.dealt), {}),
        splits=next((run.splits for run in runs if run.splits), {}),
        models=next((run.models for run in runs if run.models), {}),
        findings=tuple(text for run in runs for text in run.findings),
    )


def _labels(paths: Sequence[Path]) -> list[str]:
    """Shortest trailing parts of the paths that tell them apart."""
    for depth in range(1, max(len(p.parts) for p in paths) + 1):
        names = ["/".join(p.parts[-depth:]) for p in paths]
        if len(set(names)) == len(names):
            return names
    return [str(p) for p in paths]
