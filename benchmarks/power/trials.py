"""Trials read back from files, and the verdict on two of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from power.figures import shorten_envelope
from power.settings import FRAMEWORKS, MARGIN, UPDATES, Record


def usual_folder(run: Path, arm: str, backend: str, seed: int) -> Path:
    return run / "trials" / arm / backend / f"seed{seed}"


def usual(run: Path, arm: str, backend: str, seed: int, horizon: int = UPDATES) -> Any:
    """Return the usual trial, as if its horizon had been this one."""
    from dualml.experiment.store.plan import restore_plan
    from dualml.experiment.store.trajectory import read_trajectory

    plan = restore_plan(run / "plan")
    shapes = plan.spec_of(plan.experiment.arms[arm]).parameters()
    found = read_trajectory(usual_folder(run, arm, backend, seed), backend, shapes)
    return shortened(found, envelope_file(run, arm, backend, seed), horizon)


def usual_and_envelopes(
    run: Path, arm: str, backend: str, seed: int, horizon: int
) -> tuple[Any, list[Any]]:
    """Return the usual trial of a backend, and the envelopes of both backends, because a verdict
    uses the two."""
    sides = {b: usual(run, arm, b, seed, horizon) for b in FRAMEWORKS}
    return sides[backend], [side.envelope for side in sides.values()]


def envelope_file(run: Path, arm: str, backend: str, seed: int) -> Record:
    """Return the content of a trial's envelope file."""
    path = usual_folder(run, arm, backend, seed) / "envelope.json"
    told: Record = json.loads(path.read_text("utf-8"))
    return told


def shortened(trajectory: Any, drawn: Record | None, horizon: int) -> Any:
    """Return a trajectory, and optionally its envelope, cut at a shorter horizon."""
    from dualml.experiment.store.envelope import Envelope

    kept = {k: v for k, v in trajectory.tensors.items() if int(k.split("/")[1]) <= horizon}
    return replace(
        trajectory,
        losses=trajectory.losses[:horizon],
        tensors=kept,
        data={step: digest for step, digest in trajectory.data.items() if step <= horizon},
        envelope=None if drawn is None else Envelope.from_content(shorten_envelope(drawn, horizon)),
    )


def compared(a: Any, b: Any, envelopes: list[Any]) -> Record:
    """Return the verdict on two trajectories; its ``all_draws`` is the verdict if every draw
    counted."""
    from dualml.parity.pairs import compare_trajectories

    found = compare_trajectories(a, b, MARGIN, envelopes)
    bare = [replace(drawn, plain_loss=None, plain_tensors={}) for drawn in envelopes]
    naive = compare_trajectories(a, b, MARGIN, bare)
    phases = found.phases
    worst = max(phases, key=lambda phase: phases[phase]["ratio"], default=None)
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "ratio": found.ratio,
        "same": all(told["max"] == 0 for told in phases.values()),
        "all_draws": {"verdict": naive.verdict, "ratio": naive.ratio},
        "first": found.first_divergence,
        "at": [worst, phases[worst]["step"], phases[worst]["tensor"]] if worst else None,
    }
