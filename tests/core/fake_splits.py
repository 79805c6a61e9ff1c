"""A small run folder of split models, with real plans and timelines from the pipeline simulation.

A rank computes `FLOPS` operations per second, in linear layers only. Messages and all-reduces
follow `LINK` exactly, a parameter update takes `UPDATE`, and `BETWEEN` is the gap between two
updates, so that a test knows every number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import fake_run

from dualml.algorithms.model.layers import Linear
from dualml.algorithms.model.zoo import model
from dualml.experiment.split import Split
from dualml.experiment.store.times import TIMELINE
from dualml.parallel.split import traffic
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.timeline import COLUMNS, KINDS, Timeline
from dualml.parallel.split.timeline_stats import summary
from dualml.planning.cost.link import Link
from dualml.planning.cost.pipeline import simulate_pipeline
from dualml.planning.cost.split import all_reduce_s

UPDATES, BATCH = 6, 256
UPDATE, BETWEEN = 1e-4, 1e-3
LINK = Link(1e-4, 1e-9)
FLOPS = 1e11
SLOWER = {"numpy": 5.0, "torch": 1.0, "mindspore": 2.0}
HELD = 1000  # bytes of a sample and stage
WHY = "MindSpore has no remote procedure calls"


def arm(n: int, split: dict | None, name: str = "deep_mlp", group: str = "pipeline", **more: Any):
    made = fake_run.arm("sgd", 0.05, BATCH, 1, group) | {"updates": UPDATES, "model": name}
    made |= {"cores": 1} | ({"world_size": n} if n > 1 else {})
    return made | ({} if split is None else {"split": split}) | more


SLOW = {"rank": 1, "latency_s": 0.001, "bandwidth_bytes_per_s": 1e8}


BOTH = {"cut": ["fc4"], "tensor": 2, "micro_batches": 4}


def piped(m: int, schedule: str = "1f1b", cut: str = "fc4", n: int = 2, **more: Any) -> dict:
    told = {"cut": [cut], "schedule": schedule, "micro_batches": m}
    defaults = Split().model_dump(mode="json")
    return arm(n, {k: v for k, v in told.items() if v != defaults[k]}, **more)


ARMS = {
    "deep": arm(1, None),
    "naive": piped(4, "naive"),
    "gpipe": piped(4, "gpipe"),
    "one-1": piped(1),
    "one-4": piped(4),
    "one-8": piped(8),
    "gpipe-8": piped(8, "gpipe"),
    "inter": arm(2, {"cut": ["fc3", "fc4", "fc6"], "schedule": "interleaved", "micro_batches": 4}),
    "cut-2": piped(4, cut="fc2", group="cut"),
    "even": arm(2, {"balance": "activations", "micro_batches": 4}, group="cut"),
    "inside": arm(2, {"tensor": 2}),
    "inside-2": arm(2, {"tensor": 2, "micro_batches": 2}),
    "slow-piped": piped(4, group="link", slow=SLOW),
    "slow-inside": arm(2, {"tensor": 2}, group="link", slow=SLOW),
    "mesh": arm(4, BOTH, group="mesh"),
    "narrow": arm(1, None, "mlp", "width"),
    "narrow-inside": arm(2, {"tensor": 2}, "mlp", "width"),
    "narrow-piped": piped(4, cut="fc2", name="mlp", group="width"),
    "rpc": arm(2, {"cut": ["fc4"], "engine": "rpc"}, group="calls"),
}
WHOLE = {"deep_mlp": "deep", "mlp": "narrow"}


def plan_of(settings: dict) -> SplitPlan:
    told = Split.model_validate(settings["split"])
    return told.plan(model(settings["model"]), settings["world_size"])


def make_run(
    folder: Path,
    *,
    arms: Sequence[str] | None = None,
    backends: Sequence[str] = ("torch", "mindspore"),
    different: str = "",
    plan: bool = True,
    timelines: bool = True,
    change: Callable[[dict], None] | None = None,
) -> Path:
    """Write the run folder and return it; ``different`` names an arm that differs from its unsplit
    model."""
    chosen = {name: deepcopy(ARMS[name]) for name in arms or ARMS}
    plans = {name: plan_of(s) for name, s in chosen.items() if "split" in s}

    def edit(run: dict) -> None:
        run["name"] = run["experiment"]["name"] = "lab4"
        for trial in run["trials"]:
            _trial(folder, trial, chosen[trial["arm"]], plans.get(trial["arm"]), timelines)
        if change:
            change(run)

    options: dict[str, Any] = {"failed": None, "different": None, "notice": None}
    fake_run.make_run(folder, arms=chosen, backends=backends, seeds=[0], change=edit, **options)
    run = json.loads((folder / "run.json").read_text("utf-8"))
    path = folder / "parity.json"
    told = json.loads(path.read_text("utf-8"))
    told["comparisons"] = [c for c in told["comparisons"] if c["arm"] != "rpc"]
    told["serial"] = [s for t in run["trials"] for s in _serial(t, chosen, different)]
    path.write_text(json.dumps(told), "utf-8")
    if plan:
        names = dict.fromkeys(s["model"] for s in chosen.values())
        fake_run.write_plan(
            folder,
            models={name: model(name).describe() for name in names},
            splits={
                name: {"cut": list(made.cut), **traffic.describe(made, BATCH)}
                for name, made in plans.items()
            },
        )
    return folder


def flops(name: str, names: Sequence[str] = ()) -> float:
    """Return the floating-point operations of a batch, forward and backward, of all or of some
    layers."""
    layers = [layer for n, layer in model(name).layers if n in names or not names]
    sizes = [x.inputs * x.outputs for x in layers if isinstance(x, Linear)]
    return 6.0 * BATCH * sum(sizes)


def _trial(
    folder: Path, trial: dict, settings: dict, plan: SplitPlan | None, timelines: bool
) -> None:
    backend = trial["backend"]
    trial |= {"updates": UPDATES, "sample_gradients": UPDATES * BATCH, "threads": "1"}
    if plan is None:
        trial["train_s"] = UPDATES * flops(settings["model"]) / FLOPS * SLOWER[backend]
        return
    trial["world_size"] = n = settings["world_size"]
    if plan.engine == "rpc":
        if backend == "mindspore":
            keys = ("train_s", "final_loss", "train_accuracy", "test_accuracy", "updates")
            trial |= {"status": "unsupported", "reason": WHY} | dict.fromkeys(keys)
        else:
            trial |= {"train_s": UPDATES * 0.05, "how": {"rpc": "native: torch.distributed.rpc"}}
            trial["memory"] = [
                {"live": 0.0, "held_bytes": 0.0, "parameter_bytes": 1e6, "peak_memory_mb": 300.0}
            ] * n
        return
    trial["how"] = {"isend and irecv": "native: messages"}
    place = folder / "trials" / trial["arm"] / backend / "seed0"
    events = [*_events(plan, settings, SLOWER[backend])]
    for rank, rows in enumerate(events):
        timeline = Timeline()
        timeline.rows = rows
        TIMELINE.write(place, rank, timeline.columns())
    told = summary(plan, TIMELINE.read_all(place, n))
    if not timelines:
        for rank in range(n):
            TIMELINE.path(place, rank).unlink()
    trial["ranks"] = told.pop("ranks")
    trial["split"] = told
    trial["train_s"] = UPDATES * (max(r["step_s"] for r in trial["ranks"]) + BETWEEN)
    samples = BATCH / plan.micro_batches / plan.mesh.data
    trial["memory"] = [
        {
            "live": float(live),
            "held_bytes": HELD * samples * live,
            "peak_memory_mb": 300.0 + rank,
            "parameter_bytes": 4.0 * rank_told["elements"],
        }
        for rank, rank_told in enumerate(traffic.describe(plan, BATCH)["ranks"])
        for live in [rank_told["live"]]
    ]


def _events(plan: SplitPlan, settings: dict, slower: float) -> Iterator[list[tuple[Any, ...]]]:
    """Return rank → rows of its timeline, for `UPDATES` equal updates."""
    link = LINK
    if settings.get("slow"):
        beta = LINK.beta_s_per_byte + 1 / SLOW["bandwidth_bytes_per_s"]
        link = Link(LINK.alpha_s + SLOW["latency_s"], beta)
    share = slower / FLOPS / 3 / plan.micro_batches / plan.mesh.tensor
    each = [flops(plan.spec.name, names) * share for names in plan.stages]
    size = BATCH // plan.micro_batches // plan.mesh.data
    reduces: dict[tuple[int, str], float] = {}  # (stage, way) → seconds of its collectives
    calls: dict[tuple[int, str], list[int]] = {}
    for collective in traffic.collectives(plan, BATCH):
        way = collective.kind.rpartition(" ")[2]
        stage = plan.stages_on(collective.ranks[0])[0]
        times = collective.calls // plan.micro_batches
        calls[stage, way] = [collective.nbytes // collective.calls] * times
        reduces[stage, way] = sum(all_reduce_s(2, b, link) for b in calls[stage, way])
    took = [
        [t * k + reduces.get((s, way), 0.0) for s, t in enumerate(each)]
        for way, k in (("forward", 1), ("backward", 2))
    ]
    nbytes = [4 * size * plan.activation_numel(s) for s in range(len(plan.stages) - 1)]
    made = simulate_pipeline(plan.grid, *took, [link.seconds(1, b) for b in nbytes], UPDATE)
    for rank in range(plan.world_size):
        row = plan.pipeline_row(rank)
        one = [*_row(plan, made, row, calls, link, nbytes)]
        yield [
            (u, *event[:4], event[4] + u * 10.0, event[5] + u * 10.0, event[6])
            for u in range(1, UPDATES + 1)
            for event in one
        ]


def _row(
    plan: SplitPlan, made: Any, row: int, calls: dict, link: Link, nbytes: list[int]
) -> Iterator[tuple[Any, ...]]:
    """Return a timeline row: kind, stage, micro-batch, backward, begin, end, bytes."""
    clock = 0.0
    for span in made.spans[row]:
        a, back = span.action, span.action.kind == "B"
        before = a.stage + (1 if back else -1)
        for m in made.messages:
            mine = (m.action.stage, m.action.kind, m.action.micro) == (before, a.kind, a.micro)
            if mine and m.target == row:
                yield (KINDS.index("receive"), before, a.micro, back, clock, max(clock, m.end), 0)
        at = span.end
        for b in calls.get((a.stage, "backward" if back else "forward"), ()):
            seconds = all_reduce_s(2, b, link)
            yield (KINDS.index("collective"), a.stage, a.micro, back, at - seconds, at, b)
            at -= seconds
        yield (KINDS.index(a.kind), a.stage, a.micro, back, span.start, span.end, 0)
        clock = span.end
        for m in made.messages:
            if m.source == row and m.action == a:
                size = nbytes[min(a.stage, a.stage + (-1 if back else 1))]
                yield (KINDS.index("send"), a.stage, a.micro, back, m.start, m.start + 1e-6, size)
    yield (KINDS.index("update"), -1, -1, False, clock, clock + UPDATE, 0)


def _serial(trial: dict, arms: dict, different: str) -> list[dict[str, Any]]:
    settings = arms[trial["arm"]]
    against = WHOLE[settings["model"]]
    if "split" not in settings or against not in arms or trial["status"] != "ok":
        return []
    here = {"arm": trial["arm"], "seed": 0, "backend": trial["backend"], "against": against}
    pattern = fake_run._comparison(trial, trial, settings, trial["arm"] == different)
    return [{k: v for k, v in pattern.items() if k not in ("a", "b")} | here]


assert len(COLUMNS) == 8
