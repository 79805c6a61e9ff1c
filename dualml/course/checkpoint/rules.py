"""A training that saves and one that resumes from the checkpoint, with typical mistakes as options,
for all ranks at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.places import flags_at

WEIGHTS = ("weight", "bias")
#: Share of a batch's mean in the buffer after an update.
SHARE = 0.25
#: Mistake → values that a load leaves as they are.
LOST_VALUES: Mapping[str, tuple[str, ...]] = {
    "model_lost": ("weight", "bias", "shift"),
    "weights_lost": ("weight", "bias"),
    "buffer_lost": ("shift",),
    "optimizer_lost": ("momentum/weight", "momentum/bias", "rate"),
    "momentum_lost": ("momentum/weight", "momentum/bias"),
    "rate_lost": ("rate",),
}


@dataclass
class RankTraining:
    """The state of one rank's training.

    Attributes:
        values: ``weight``, ``bias``, ``shift``, ``momentum/weight``, ``momentum/bias``, ``rate``.
        generator: the rank's random numbers.
        seed: seed of the generator.
        is_detached: whether updates no longer reach the weights.
    """

    values: dict[str, Any]
    generator: np.random.RandomState
    seed: int
    epoch: int = 0
    step: int = 0
    is_detached: bool = False


def begin_training(
    options: Mapping[str, Any], arrays: Arrays, prefix: str, seed: int, number: Any
) -> RankTraining:
    """Return a rank's training before its first update, with the arrays ``PREFIX/NAME`` and a
    generator of this seed."""
    values = {n: arrays[f"{prefix}/{n}"].astype(number) for n in (*WEIGHTS, "shift")}
    values |= {f"momentum/{n}": np.zeros_like(values[n]) for n in WEIGHTS}
    values["rate"] = np.asarray(options["hyper"]["lr"], np.float64)
    return RankTraining(values, np.random.RandomState(seed), seed)


def draw_rows(generator: np.random.RandomState, options: Mapping[str, Any], samples: int) -> Any:
    """Draw the numbers of a batch's samples, from 0 to ``samples`` − 1, int64."""
    raw = generator.randint(0, 2**32, options["batch"], dtype=np.uint32)
    return (raw % samples).astype(np.int64)


def mean_gradients(
    ranks: Sequence[RankTraining], options: Mapping[str, Any], arrays: Sequence[Arrays], number: Any
) -> dict[str, Any]:
    """Draw a batch on every rank; return the means over the ranks of the gradients of ``weight``
    and ``bias``, and as ``shift`` the mean of the samples."""
    gradients: list[dict[str, Any]] = []
    for own, a in zip(ranks, arrays, strict=True):
        rows = (draw_rows(own.generator, options, len(a["x"])) + own.epoch) % len(a["x"])
        x, y, v = a["x"][rows].astype(number), a["y"][rows].astype(number), own.values
        moved = x - v["shift"]
        off = number(2) * (moved @ v["weight"] + v["bias"] - y) / number(y.size)
        gradients.append({"weight": moved.T @ off, "bias": off.sum(0), "shift": x.mean(0)})
    return {n: sum(g[n] for g in gradients) / number(len(ranks)) for n in gradients[0]}


def update(
    ranks: Sequence[RankTraining], options: Mapping[str, Any], arrays: Sequence[Arrays], number: Any
) -> None:
    """Make one update of all ``ranks``, in place, with their mean gradient, and lower the rate at
    the end of an epoch."""
    mean, h = mean_gradients(ranks, options, arrays, number), options["hyper"]
    for own in ranks:
        for name in () if own.is_detached else WEIGHTS:
            v = number(h["momentum"]) * own.values[f"momentum/{name}"] + mean[name]
            own.values[f"momentum/{name}"] = v
            own.values[name] = own.values[name] - number(own.values["rate"]) * v
        own.values["shift"] = (
            number(1 - SHARE) * own.values["shift"] + number(SHARE) * mean["shift"]
        )
        own.step += 1
        if own.step % options["epoch"] == 0:
            own.epoch += 1
            own.values["rate"] = own.values["rate"] * h["decay"]


def train_and_resume(
    options: Mapping[str, Any],
    arrays: Sequence[Arrays],
    flags: Flags = RIGHT,
    number: type[np.floating[Any]] = np.float64,
) -> list[Arrays]:
    """Compute each rank's ``saved/NAME`` and ``loaded/NAME``, ``progress/epoch``,
    ``progress/step``, ``7/NAME`` after update 7 of the resumed training, and ``whole/7/NAME`` of
    the one that went on."""
    ranks = [
        begin_training(options, a, "start", seed, number)
        for a, seed in zip(arrays, options["seeds"], strict=True)
    ]
    kept: list[RankTraining] = []
    for step in range(1, options["updates"] + 1):
        update(ranks, options, arrays, number)
        if step == options["early"]:
            kept = deepcopy(ranks)
    out: list[dict[str, Any]] = [
        {f"saved/{n}": a for n, a in describe(own, options, a["x"]).items()}
        for own, a in zip(ranks, arrays, strict=True)
    ]
    if "first_checkpoint_kept" not in flags:
        kept = deepcopy(ranks)
    again = [
        begin_training(options, a, "fresh", seed, number)
        for a, seed in zip(arrays, options["fresh_seeds"], strict=True)
    ]
    for rank, own in enumerate(again):
        restore(own, kept, rank, flags_at(flags, rank=(rank, len(again))))
        out[rank] |= {
            f"loaded/{n}": a for n, a in describe(own, options, arrays[rank]["x"]).items()
        }
        out[rank] |= {
            "progress/epoch": np.asarray(own.epoch),
            "progress/step": np.asarray(own.step),
        }
    for step in range(options["updates"] + 1, options["updates"] + options["more"] + 1):
        update(again, options, arrays, number)
        update(ranks, options, arrays, number)
        for rank, own in enumerate(again):
            for name in (*WEIGHTS, "shift"):
                out[rank][f"{step}/{name}"] = own.values[name]
                out[rank][f"whole/{step}/{name}"] = ranks[rank].values[name]
    return list(out)


def describe(own: RankTraining, options: Mapping[str, Any], x: Any) -> dict[str, Any]:
    """Return a rank's values by name, and as ``draws`` the numbers of the samples that its
    generator would draw for the next four batches; the generator stays as it is."""
    copied = deepcopy(own.generator)
    draws = np.concatenate([draw_rows(copied, options, len(x)) for _ in range(4)])
    return {**own.values, "draws": draws}


def restore(own: RankTraining, kept: Sequence[RankTraining], rank: int, flags: Flags) -> None:
    """Load a checkpoint into a rank's fresh training ``own``, in place, with the typical mistakes
    named in ``flags``; ``kept`` is every rank's training when it was saved."""
    own.is_detached = "model_replaced" in flags
    source = kept[rank]
    own.epoch, own.step = source.epoch, source.step
    if flags & {"root_only", "root_only#2"} and rank:
        if "root_only#2" in flags:
            own.epoch = own.step = 0
        return
    lost = {name for flag, names in LOST_VALUES.items() if flag in flags for name in names}
    if "others_optimizer_lost" in flags and rank:
        lost |= set(LOST_VALUES["optimizer_lost"])
    for name in own.values.keys() - lost:
        value = source.values[name]
        if "values_rounded" in flags and name in LOST_VALUES["model_lost"]:
            value = value.astype(np.float16).astype(value.dtype)
        own.values[name] = value
    restore_generator(own, kept, rank, flags)
    if "progress_lost" in flags or ("progress_lost#others" in flags and rank):
        own.epoch = own.step = 0
    if "epoch_lost" in flags:
        own.epoch = 0
    own.step += ("step_too_far" in flags) - ("step_too_few" in flags)


def restore_generator(
    own: RankTraining, kept: Sequence[RankTraining], rank: int, flags: Flags
) -> None:
    """Restore the generator of a rank's training ``own``, in place, with the typical mistakes named
    in ``flags``; ``kept`` is every rank's training when it was saved."""
    if "random_lost" in flags or ("others_random_lost" in flags and rank):
        return
    source = kept[0 if "random_of_root" in flags else rank]
    own.generator = deepcopy(source.generator)
    if "random_begins_again" in flags:
        own.generator = np.random.RandomState(source.seed)
