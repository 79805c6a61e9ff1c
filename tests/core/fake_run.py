"""A small run folder as `docs/run-folder.md` defines it, made without training.

The curves follow closed formulas with seeded noise, so that a test knows every number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualml.algorithms.model.zoo import model

TRAIN, TEST = 1200, 400
REASON = "loss is not finite at update 7 (learning rate 0.5)"
NOTICE = {
    "en": "MNIST is not at hand; scikit-learn's digits are used instead.",
    "zh": "找不到 MNIST，改用 scikit-learn 的手写数字。",
}
#: arm → seconds per update, floor of the loss, speed of its decay per update
SHAPE = {"gd": (0.31, 0.9, 0.03), "sgd": (0.004, 0.12, 0.03), "adam": (0.005, 0.05, 0.07)}
SLOWER = {"numpy": 2.5, "torch": 1.0, "mindspore": 1.75}


def arm(optimizer: str, lr: float, batch: int, epochs: float, group: str = "main") -> dict:
    rule: dict[str, Any] = {"name": optimizer, "lr": lr}
    if optimizer == "sgd":
        rule |= {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0}
    if optimizer == "adam":
        rule |= {"betas": [0.9, 0.999], "eps": 1e-8, "eps_form": "outside"}
        rule |= {"bias_correction": True, "weight_decay": 0.0}
    schedule = {"kind": "constant", "every": 1000, "gamma": 0.1}
    schedule |= {"total": 0, "floor": 0.0, "warmup": 0}
    return {
        "optimizer": rule,
        "schedule": schedule,
        "batch_size": batch,
        "epochs": epochs,
        "updates": 0,
        "samples": 0,
        "chunk": 256,
        "group": group,
    }


MAIN = {
    "gd": arm("gd", 0.1, 0, 20),
    "sgd": arm("sgd", 0.05, 12, 5),
    "adam": arm("adam", 0.001, 12, 5),
}
SWEEP = {
    f"{rule}-lr{lr:g}": arm(rule, lr, 12, 2, "learning-rate")
    for rule in ("sgd", "adam")
    for lr in (0.001, 0.01, 0.1)
} | {f"adam-b{size}": arm("adam", 0.001, size, 4, "batch-size") for size in (8, 24, 120)}


def make_run(
    folder: Path,
    *,
    arms: dict[str, dict] | None = None,
    backends: Sequence[str] = ("numpy", "torch", "mindspore"),
    seeds: Sequence[int] = (0, 1),
    failed: tuple[str, str, int] | None = ("gd", "mindspore", 1),
    reason: str = REASON,
    different: tuple[str, int] | None = ("sgd", 1),
    parity: bool = True,
    plan: dict[str, str] | None = None,
    quick: bool = True,
    notice: dict[str, str] | None = NOTICE,
    change: Callable[[dict], None] | None = None,
) -> Path:
    """Write a run folder and return it; ``change`` may edit ``run.json`` before it is written."""
    arms = MAIN if arms is None else arms
    parts = {k: _sha256(k) for k in ("experiment", "data", "weights", "order")} | (plan or {})
    trials = [
        _trial(folder, name, arms[name], backend, seed, failed, reason)
        for name in arms
        for backend in backends
        for seed in seeds
    ]
    run = {
        "format": 1,
        "dualml": "0.1.0",
        "created": "2026-01-02T03:04:05+00:00",
        "git": None,
        "name": "lab1",
        "lang": "en",
        "experiment": {
            "name": "lab1",
            "title": {"en": "GD, SGD and Adam", "zh": "GD、SGD 与 Adam"},
            "question": {"en": "What does noise buy?", "zh": "噪声换来了什么？"},
            "data": {"name": "mnist", "train": TRAIN, "test": TEST},
            "model": "lenet",
            "loss": "cross_entropy",
            "seeds": list(seeds),
            "arms": arms,
            "quick": quick,
        },
        "data": {
            "name": "digits",
            "source": "embedded" if notice else "cache",
            "train": TRAIN,
            "test": TEST,
            "sha256": "ab" * 32,
            "notice": notice,
        },
        "plan_hash": _sha256("".join(parts.values())),
        "plan_parts": parts,
        "environment": {
            name: {
                "python": "3.11.7",
                name: {"numpy": "1.26.4", "torch": "2.13.0", "mindspore": "2.10.0"}[name],
                "device": "cpu",
                "threads": "2",
                "cores": "2 usable, 2 physical, 2 logical",
                "dtype": "float64" if name == "numpy" else "float32",
                "deterministic": "yes",
            }
            for name in backends
        },
        "trials": trials,
    }
    for trial in trials:
        trial["plan_hash"] = run["plan_hash"]
    if change:
        change(run)
    _write(folder / "run.json", run)
    if parity:
        done = [t for t in trials if t["status"] == "ok"]
        _write(folder / "parity.json", _parity(done, arms, different))
    return folder


def write_plan(folder: Path, **content: Any) -> None:
    """Write a ``plan.json`` for the run in ``folder``."""
    run = json.loads((folder / "run.json").read_text("utf-8"))
    plan = {"format": 1, "hash": run["plan_hash"], "parts": run["plan_parts"]}
    plan |= {"data": run["data"], "model": model(run["experiment"]["model"]).describe()}
    plan |= {"experiment": run["experiment"], **content}
    _write(folder / "plan" / "plan.json", plan)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, allow_nan=False), encoding="utf-8")


def batch(settings: dict) -> int:
    return settings["batch_size"] or TRAIN


def updates(settings: dict) -> int:
    return round(settings["epochs"] * TRAIN / batch(settings))


def curve(name: str, settings: dict, backend: str, seed: int) -> np.ndarray:
    """Return the loss before each update; the frameworks differ in the seventh digit."""
    rule = settings["optimizer"]["name"]
    _, floor, decay = SHAPE[rule]
    n = updates(settings)
    rng = np.random.default_rng([seed, len(name), n])
    best = {"gd": 0.1, "sgd": 0.05, "adam": 0.001}[rule]
    decay *= 1 / (1 + np.log10(settings["optimizer"]["lr"] / best) ** 2)
    mean = floor + (2.3 - floor) * np.exp(-decay * np.arange(n))
    noise = 0 if batch(settings) == TRAIN else 0.6 / np.sqrt(batch(settings))
    rounding = 1e-7 * sorted(SLOWER).index(backend) * np.sin(np.arange(n))
    return mean * (1 + noise * rng.uniform(-1, 1, n)) * (1 + rounding)


def _trial(
    folder: Path,
    name: str,
    settings: dict,
    backend: str,
    seed: int,
    failed: tuple[str, str, int] | None,
    reason: str,
) -> dict[str, Any]:
    broken = failed == (name, backend, seed)
    losses = curve(name, settings, backend, seed)[: 6 if broken else None]
    each = SHAPE[settings["optimizer"]["name"]][0] * SLOWER[backend]
    each *= batch(settings) / (TRAIN if name == "gd" else 12)
    n, share = len(losses), batch(settings) / TRAIN
    records = [
        {"metric": "loss", "step": k + 1, "value": v, "unit": "nat", "epochs": (k + 1) * share}
        for k, v in enumerate(losses)
    ]
    for k in sorted({0, *range(0, n + 1, max(1, n // 20)), n}):
        smooth = float(np.mean(losses[max(0, k - 20) : max(k, 1)]))
        at = {"step": k, "epochs": k * share, "seconds": k * each}
        for split, gap in (("train", 0.0), ("test", 0.01)):
            accuracy = max(0.1, 1 - 0.36 * smooth - gap)
            records.append({"metric": f"{split}_loss", "value": smooth + gap, "unit": "nat"} | at)
            records.append({"metric": f"{split}_accuracy", "value": accuracy, "unit": "1"} | at)
    path = folder / "trials" / name / backend / f"seed{seed}" / "rank0.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    final = {r["metric"]: r["value"] for r in records}
    return {
        "arm": name,
        "backend": backend,
        "seed": seed,
        "status": "failed" if broken else "ok",
        "reason": reason if broken else None,
        "wall_s": n * each + {"numpy": 0.4, "torch": 2.5, "mindspore": 6.0}[backend],
        "train_s": n * each,
        "final_loss": None if broken else final["train_loss"],
        "train_accuracy": None if broken else final["train_accuracy"],
        "test_accuracy": None if broken else final["test_accuracy"],
        "updates": n,
        "sample_gradients": n * batch(settings),
        "peak_memory_mb": {"numpy": 180, "torch": 420, "mindspore": 610}[backend],
        "how": {},
    }


def _parity(trials: list[dict], arms: dict, different: tuple[str, int] | None) -> dict[str, Any]:
    comparisons = []
    for x in trials:
        for y in trials:
            same = (x["arm"], x["seed"]) == (y["arm"], y["seed"])
            if same and SLOWER_RANK[x["backend"]] < SLOWER_RANK[y["backend"]]:
                bad = different == (x["arm"], x["seed"]) and y["backend"] == "mindspore"
                bad = bad and x["backend"] == "torch"
                comparisons.append(_comparison(x, y, arms[x["arm"]], bad))
    settings = {"draws": 3, "horizon": 200, "margin": 4.0, "floor": 1.2e-7}
    return {"format": 1, "settings": settings, "comparisons": comparisons}


SLOWER_RANK = {"numpy": 0, "torch": 1, "mindspore": 2}


def _comparison(x: dict, y: dict, settings: dict, bad: bool) -> dict[str, Any]:
    a, b = (curve(x["arm"], settings, t["backend"], t["seed"]) for t in (x, y))
    steps = min(len(a), 200)
    distance = np.abs(a - b)[:steps] / np.abs(a[:steps])
    envelope = 4e-7 * np.exp(0.01 * np.arange(steps))
    if bad:
        distance = distance + np.where(np.arange(steps) >= 11, 2e-3, 0)
    top = int(np.argmax(distance / envelope))
    phases = {"data": _phase(0.0, 0.0, 0.0, 1, None)}
    for name, scale in (("forward", 0.5), ("loss", 1), ("gradient", 2), ("update", 0.2)):
        tensor = None if name == "loss" else "conv1.weight"
        limit = float(envelope[top]) * scale
        phases[name] = _phase(
            float(distance[top]) * scale, float(distance[-1]) * scale, limit, top + 1, tensor
        )
    first = None
    if bad:
        first = {"step": 12, "after": 10, "phase": "gradient", "tensor": "conv1.weight"}
        first |= {"distance": 4e-3, "envelope": 8e-7}
    return {
        "arm": x["arm"],
        "seed": x["seed"],
        "a": x["backend"],
        "b": y["backend"],
        "verdict": "different" if bad else "equal",
        "reason": "outside_envelope" if bad else "inside_envelope",
        "evidence": {"ratio": phases["gradient"]["ratio"]},
        "steps": steps,
        "phases": phases,
        "first_divergence": first,
        "curve": {
            "step": list(range(1, steps + 1)),
            "loss": distance.tolist(),
            "envelope": envelope.tolist(),
        },
        "outcome": {
            "final_loss": [x["final_loss"], y["final_loss"]],
            "test_accuracy": [x["test_accuracy"], y["test_accuracy"]],
            "weights": float(distance[-1]),
        },
    }


def _phase(top: float, final: float, envelope: float, step: int, tensor: str | None) -> dict:
    ratio = top / envelope if envelope else (0.0 if top == 0 else None)
    return {
        "max": top,
        "final": final,
        "envelope": envelope,
        "ratio": ratio,
        "step": step,
        "tensor": tensor,
    }
