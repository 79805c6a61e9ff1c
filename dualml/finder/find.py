"""The finder: from a verdict `different` to where it begins, on whose side, and why."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.errors import TrialError, UserError
from dualml.finder.causes import GUESSES, Guess, Suspect
from dualml.finder.causes.base import disturbs, tensors, unexplained
from dualml.finder.localise import Point, elements, gap, order, outside, points
from dualml.finder.replays import Session, replayed
from dualml.finder.scene import PHASES, REFEREE, Scene
from dualml.store.records import read_records

#: A cause is named where it takes away at least this share of the difference.
ENOUGH = 0.9
#: Two guesses whose scores are nearer than this explain alike: the simpler one is put first.
ALIKE = 0.005
SHOWN = 3


def findings(session: Session, parity: Mapping[str, Any], most: int = 3) -> list[dict[str, Any]]:
    """What is behind each comparison that says `different`, of at most ``most`` of them.

    A comparison with n ranks against one is looked at where the backends agree among themselves.
    """
    wanted = [c for c in parity.get("comparisons", []) if suspicious(c)]
    wanted += failures(session, parity)
    seen = {(c["arm"], c["seed"], b) for c in wanted for b in (c["a"], c["b"])}
    for c in parity.get("serial", []):
        if suspicious(c) and (c["arm"], c["seed"], c["backend"]) not in seen:
            wanted.append({**c, "a": c["backend"], "b": REFEREE})
    found: list[dict[str, Any]] = []
    told: set[tuple[str, int, str]] = set()
    for c in wanted:
        if len(found) >= most:
            break
        where = (c["arm"], c["seed"])
        if any(where == t[:2] and t[2] in (c["a"], c["b"]) for t in told):
            continue  # the same backend in another pair
        finding = {"arm": c["arm"], "seed": c["seed"], "a": c["a"], "b": c["b"]}
        try:
            finding |= find(session, c)
        except (UserError, TrialError) as error:
            finding |= {"status": "not replayed", "reason": str(error)}
        found.append(finding)
        if finding.get("backend"):
            told.add((*where, finding["backend"]))
    return found


#: Parts of the reasons of trials that failed by their numbers (`dualml.worker.guards`).
NUMBERS = ("the loss is ", "the loss diverges", "not finite", "moved no parameter", "does not hold")


def failures(session: Session, parity: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Comparisons that lack one side because its numbers ended it, while the other went through."""
    trials, suspects = session.folder.trials, []
    for c in parity.get("comparisons", []):
        lost = [name for name in (c["a"], c["b"]) if c.get("evidence", {}).get(name) == "failed"]
        if c.get("reason") != "trial_missing" or len(c["evidence"]) != 1 or len(lost) != 1:
            continue
        trial = trials[c["arm"], lost[0], c["seed"]]
        if any(part in (trial.reason or "") for part in NUMBERS):
            first = {"step": updates_made(session.folder.trial_folder(trial.key)) + 1}
            suspects.append({**c, "first_divergence": first})
    return suspects


def updates_made(folder: Path) -> int:
    """Updates whose losses a trial recorded before it ended."""
    try:
        losses = read_records(folder).get("loss")
    except UserError:
        return 0
    return 0 if losses is None else len(losses.step)


def suspicious(comparison: Mapping[str, Any]) -> bool:
    """Whether there is something to be found: another result, or other samples."""
    return comparison["verdict"] == "different" or comparison.get("reason") == "other_samples"


def find(session: Session, comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Replay, localise, explain; the content of a finding.

    Raises:
        UserError, TrialError: the replay could not be made.
    """
    arm, seed = comparison["arm"], comparison["seed"]
    sides = [name for name in (comparison["a"], comparison["b"]) if name != REFEREE]
    margin = session.plan.experiment.parity.margin
    with tempfile.TemporaryDirectory(prefix="dualml-find-") as made:
        scene = replayed(session, arm, seed, sides, comparison, Path(made))
    return explain(scene, sides, margin)


def explain(scene: Scene, sides: Sequence[str], margin: float) -> dict[str, Any]:
    """Where the replays leave the rule, on whose side, and what would make just that."""
    strays = {name: outside(scene, name, margin) for name in sides}
    first = min((p for found in strays.values() for p in found), key=order, default=None)
    if first is None:
        return {"status": "rounding only", "steps": scene.steps, "margin": margin,
                "worst": worst(scene, sides)}  # fmt: skip
    mine = strays[first.backend]
    guilty = [name for name, found in strays.items()
              if any((p.step, p.phase, p.tensor) == (first.step, first.phase, first.tensor)
                     for p in found)]  # fmt: skip
    out, clean = looks(scene, mine, first)
    suspect = Suspect(scene, first.backend, first.phase, first.tensor, out, clean)
    ranked = rank(suspect)
    seen = scene.sides[first.backend].ranks[first.rank][first.key]
    ref = scene.right(first.backend, first.rank, first.key)
    here = [p for p in mine if (p.step, p.phase) == (first.step, first.phase)]
    return {
        "status": "found" if ranked and ranked[0]["score"] >= ENOUGH else "localised",
        "backend": first.backend,
        "guilty": guilty,
        "steps": scene.steps,
        "step": first.step,
        "first_steps": sorted({p.step for p in mine if p.phase == first.phase}),
        "phase": first.phase,
        "tensor": first.tensor,
        "layer": layer_of(scene, first),
        "tensors": list(dict.fromkeys(p.tensor for p in here)),
        "of_tensors": len(tensors(scene.referee.ranks[first.rank], first.step, first.phase)),
        "ranks": sorted({p.rank for p in here}),
        "world_size": len(scene.referee.ranks),
        "owners": owners(scene, first),
        "collective": collective(scene, first),
        "distance": first.distance,
        "envelope": first.envelope,
        "margin": margin,
        "others": {name: gap(scene.sides[name].ranks[first.rank][first.key], ref)
                   for name in sides if name != first.backend
                   and first.key in scene.sides[name].ranks[first.rank]},
        "elements": elements(seen, ref),
        "causes": ranked[:SHOWN],
    }  # fmt: skip


Looks = list[tuple[int, int]]


def looks(scene: Scene, mine: Sequence[Point], first: Point) -> tuple[Looks, Looks]:
    """Updates and ranks that leave the rule in the phase of the first point and not before it, and
    the updates at which these ranks do neither."""
    at = PHASES.index(first.phase)
    early = {(p.step, p.rank) for p in mine if PHASES.index(p.phase) < at}
    out = {(p.step, p.rank) for p in mine if p.phase == first.phase} - early
    every = {(step, rank) for step in scene.steps for rank in {rank for _, rank in out}}
    return sorted(out), sorted(every - out - early)


def rank(suspect: Suspect) -> list[dict[str, Any]]:
    """The best guess of each cause, best first: cause, share explained, numbers."""
    best: dict[str, tuple[float, bool, Guess]] = {}
    for guess in GUESSES[suspect.phase](suspect):
        if any(isinstance(v, float) and not math.isfinite(v) for v in guess.detail.values()):
            continue  # what could not be fitted: it would "explain" any NaN
        try:
            made = (1 - unexplained(suspect, guess), disturbs(suspect, guess), guess)
        except (ArithmeticError, ValueError, LookupError):
            continue  # what cannot be computed of these tensors explains nothing
        known = best.get(guess.cause)
        if known is None or better(made, known):
            best[guess.cause] = made
    found = [made for made in best.values() if made[0] > 0]
    # Of guesses that explain alike, first those that leave alone what is right, then those with
    # less that was fitted.
    top = max((score for score, _, _ in found), default=0.0)

    def place(made: tuple[float, bool, Guess]) -> tuple[bool, bool, int, float]:
        score, disturbing, guess = made
        alike = score >= top - ALIKE
        return not alike, alike and disturbing, guess.free if alike else 0, -score

    found.sort(key=place)
    return [{"cause": g.cause, "score": s, "detail": g.detail} for s, _, g in found]


def better(made: tuple[float, bool, Guess], known: tuple[float, bool, Guess]) -> bool:
    if abs(made[0] - known[0]) < ALIKE / 10:
        return (made[1], made[2].free) < (known[1], known[2].free)
    return made[0] > known[0]


def layer_of(scene: Scene, point: Point) -> str | None:
    """The layer that the tensor belongs to."""
    name = point.tensor.rpartition("/")[2]
    layers = [n for n, _ in scene.spec.layers]
    if name in layers:
        return name
    owner = name.rpartition(".")[0]
    return owner if owner in layers else None


def owners(scene: Scene, point: Point) -> list[int] | None:
    """Of a split model, the ranks that hold the layer."""
    split, layer = scene.plan.splits.get(scene.arm_name), layer_of(scene, point)
    if split is None or layer is None:
        return None
    return [r for r in range(split.world_size)
            if any(layer in split.stages[s] for s in split.stages_on(r))]  # fmt: skip


def collective(scene: Scene, point: Point) -> str | None:
    """How the ranks that share a batch add up, where that is the phase."""
    if point.phase != "aggregation":
        return None
    return scene.arm.aggregation.strategy


def worst(scene: Scene, sides: Sequence[str]) -> dict[str, Any] | None:
    """The point nearest to the limit, where none is beyond it."""
    found = max(
        (p for name in sides for p in points(scene, name)), key=lambda p: p.ratio, default=None
    )
    if found is None:
        return None
    return {"backend": found.backend, "step": found.step, "phase": found.phase,
            "tensor": found.tensor, "ratio": found.ratio}  # fmt: skip
