"""The plan: all that must be identical across backends, frozen before a framework is imported.

From the experiment, the data and the seeds: initial weights, sample order, subsets, the steps at
which to evaluate and to trace. It is written to ``DIR/plan`` and has a hash; a worker reads nothing
else, and two run folders are comparable when their hashes agree.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

from dualml.data import Dataset
from dualml.errors import UserError
from dualml.experiment.deals import Course, Feed, Shared, deal_key, freeze_deals, lists_of
from dualml.experiment.schema import MOST_UPDATES, Arm, Experiment
from dualml.experiment.split import reference_times
from dualml.files import read_json, readable, write_bytes, write_json
from dualml.model import initial_weights, model
from dualml.model.spec import ModelSpec
from dualml.seeds import generator
from dualml.split.plan import SplitPlan

Index = NDArray[np.int32]
FORMAT = 1
MOST_DEALT = 2**28  # indices in the order of one pool: 1 GiB
#: Keys of an experiment that do not change what is computed, only how it is run, judged or shown.
EXECUTION = ("title", "question", "limits", "quick", "parity")


@dataclass(frozen=True)
class Schedule:
    """Updates at which a trial stops to look: all sorted, ``evaluate`` from 0, ``trace`` from 1."""

    updates: int
    evaluate: list[int]
    trace: list[int]


@dataclass(frozen=True)
class Plan:
    """Frozen inputs of every trial.

    Attributes:
        experiment: the resolved experiment.
        spec: the model.
        data: name, source, sizes and fingerprint of the dataset.
        weights: ``seedN/<parameter>`` → float32.
        order: ``train``, ``test``, ``monitor`` → dataset indices; ``seedN/poolS`` → the samples of
            arms with ``samples = S``; ``seedN/poolS/epochE`` → their order;
            ``seedN/deal-…/epochE/rankR`` → the samples of a rank, in order, where an arm has a
            partition. Pools, epochs and ranks index into ``train``.
        deals: ``seedN/deal-…`` → what the partition turned out to be, epoch by epoch.
        models: name → model, of arms that have another one than the experiment; their weights
            are ``seedN/<model>/<parameter>``.
        splits: arm → how its ranks share the model.
        parts: part → SHA-256; ``hash`` is that of all parts.
    """

    experiment: Experiment
    spec: ModelSpec
    data: dict[str, Any]
    weights: dict[str, NDArray[np.float32]]
    order: dict[str, Index]
    parts: dict[str, str]
    deals: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    models: dict[str, ModelSpec] = field(default_factory=dict)
    splits: dict[str, SplitPlan] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        return sha256(canonical(self.parts))

    def spec_of(self, arm: Arm) -> ModelSpec:
        """The arm's model."""
        return self.models.get(arm.model, self.spec)

    def initial(self, seed: int, arm: Arm | None = None) -> dict[str, NDArray[np.float32]]:
        """Initial weights of the experiment's model, or of an arm's."""
        own = arm is not None and arm.model in self.models
        spec, place = (self.models[arm.model], f"{arm.model}/") if arm and own else (self.spec, "")
        return {name: self.weights[f"seed{seed}/{place}{name}"] for name in spec.parameters()}

    def pool(self, arm: Arm, seed: int) -> Index:
        return self.order[f"seed{seed}/pool{arm.samples}"]

    def feed(self, arm: Arm, seed: int) -> Feed:
        """Which samples the arm's updates train on."""
        key, ranks, size = deal_key(arm, seed), arm.dealt_ranks, arm.batch_size
        if arm.partition:
            return Feed(lambda epoch: Course(lists_of(self.order, key, epoch, ranks), size))
        pool = self.pool(arm, seed)
        if not size:
            return Feed(lambda epoch: Shared([pool], 0, arm.world_size))
        orders = f"seed{seed}/pool{arm.samples}"
        return Feed(
            lambda epoch: Shared([self.order[f"{orders}/epoch{epoch}"]], size, arm.world_size)
        )

    def features(self, arm: Arm, seed: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The training images as the arm's ranks see them: the same array on all of them."""
        rule = arm.plan_partition
        if rule is None or not rule.changes_features:
            return x
        lists = lists_of(self.order, deal_key(arm, seed), 0, arm.dealt_ranks)
        return rule.features(x, [mine.astype(np.int64) for mine in lists], seed)

    def batch(self, arm: Arm, seed: int, step: int) -> NDArray[np.int64]:
        """Samples of all ranks in update ``step`` (from 1), as indices into the training set."""
        return self.feed(arm, seed).batch(step)

    def schedule(self, arm: Arm, seed: int) -> Schedule:
        per_epoch = self.feed(arm, seed).per_epoch
        updates = arm.updates or max(1, round(arm.epochs * per_epoch))
        looks = self.experiment.evaluation
        if arm.batch_size:
            every = max(1, per_epoch // looks.per_epoch)
            evaluate = {0, updates, *range(every, updates, every)}
            evaluate |= {step for step in looks.early if step < updates}
        else:  # an epoch is one update: the same number of looks, evenly spread
            wanted = looks.per_epoch * math.ceil(arm.epochs) + len(looks.early)
            evaluate = {round(updates * i / wanted) for i in range(wanted + 1)}
        horizon = min(self.experiment.parity.horizon, updates)
        trace = {step for step in self.experiment.parity.trace if step < horizon} | {horizon}
        return Schedule(updates, sorted(evaluate), sorted(trace))


def freeze(experiment: Experiment, data: Dataset) -> Plan:
    """Compute the plan.

    Raises:
        UserError: a model that does not fit the data, ranks that do not fit the data.
    """
    spec = model_for(experiment, data)
    models = {
        arm.model: model_for(experiment, data, arm.model)
        for arm in experiment.arms.values()
        if arm.model not in ("", experiment.model)
    }
    splits = freeze_splits(experiment, spec, models)
    text = data.kind == "text"
    order = {
        "train": subset(len(data.train_y), experiment.data.train, 0, "train"),
        "test": subset(len(data.test_y), experiment.data.test, 0, "test"),
    }
    n = len(order["train"])
    order["monitor"] = subset(n, experiment.evaluation.train_samples, 0, "monitor")
    weights, deals = {}, dict[str, list[dict[str, Any]]]()
    labels = None if text else data.train_y[order["train"]]
    for seed in experiment.seeds:
        for name, w in initial_weights(spec, seed).items():
            weights[f"seed{seed}/{name}"] = w
        for other, own in models.items():
            for name, w in initial_weights(own, seed).items():
                weights[f"seed{seed}/{other}/{name}"] = w
        for name, arm in experiment.arms.items():
            if seed not in experiment.seeds_of(name):
                continue
            key = f"seed{seed}/pool{arm.samples}"
            if key not in order:
                order[key] = subset(n, arm.samples, seed, "pool", arm.samples)
            check_ranks(name, arm, len(order[key]))
            epochs = epochs_needed(arm, len(order[key]))
            check_length(arm, len(order[key]), epochs)
            if arm.partition:
                freeze_deals(name, arm, seed, order[key], labels, order, deals)
                continue
            for epoch in range(epochs):
                if f"{key}/epoch{epoch}" not in order:
                    draw = generator(seed, "order", arm.samples, epoch)
                    order[f"{key}/epoch{epoch}"] = draw.permutation(order[key]).astype(np.int32)
    description = {
        "name": data.name,
        "source": data.source,
        "sha256": data.sha256,
        "notice": data.notice,
        "train": n,
        "test": len(order["test"]),
        "mean": data.mean,
        "std": data.std,
        **(of_text(experiment, data) if text else {}),
    }
    return Plan(
        experiment,
        spec,
        description,
        weights,
        order,
        parts_of(experiment, spec, description, weights, order, models, splits),
        deals,
        models,
        splits,
    )


def freeze_splits(
    experiment: Experiment, spec: ModelSpec, models: Mapping[str, ModelSpec]
) -> dict[str, SplitPlan]:
    """The split plans of all arms that have one.

    Raises:
        UserError: with the arm's name, what cannot be split so.
    """
    found = {}
    for name, arm in experiment.arms.items():
        if arm.split is None:
            continue
        own = models.get(arm.model, spec)
        timed = arm.split.balance == "time" and not arm.split.cut
        try:
            times = reference_times(own) if timed else None
            found[name] = arm.split.plan(own, arm.world_size, times)
        except UserError as error:
            raise UserError(f"arms.{name}: {error}") from None
    return found


def model_for(experiment: Experiment, data: Dataset, name: str = "") -> ModelSpec:
    """The experiment's model, or another one, for these samples; of a text, for its vocabulary and
    windows.

    Raises:
        UserError: a model of images and a text, or the reverse; another shape; settings that only
            a text has, or cannot have.
    """
    spec, sizes = model(name or experiment.model), experiment.data
    if data.kind == "text":
        if not spec.tokens:
            raise UserError(
                f"model {spec.name!r} takes {spec.input_shape} images; {data.name} is a text: use "
                "a model of text, such as rnn_lm, or a dataset of images"
            )
        if experiment.loss != "cross_entropy":
            raise UserError(f"loss = {experiment.loss} is for images; a text needs cross_entropy")
        return model(spec.name, words=len(data.classes), length=data.train_x.shape[1])
    if spec.tokens:
        raise UserError(
            f"model {spec.name!r} takes tokens of a text; {data.name} has images: use a text, such "
            "as sentences, or a model of images"
        )
    shape = (1, *data.train_x.shape[1:])
    if shape != spec.input_shape:
        raise UserError(
            f"model {spec.name!r} takes {spec.input_shape} images; {data.name} has {shape}"
        )
    for key in ("words", "length"):
        if getattr(sizes, key) != type(sizes).model_fields[key].default:
            raise UserError(
                f"data.{key} = {getattr(sizes, key)} is for texts; {data.name} has images: leave "
                "it out"
            )
    return spec


def of_text(experiment: Experiment, data: Dataset) -> dict[str, Any]:
    """What the plan's data say of a text alone: how to make the same samples of it again."""
    told = {
        "kind": data.kind,
        "words": experiment.data.words,
        "length": data.train_x.shape[1],
        "vocabulary": len(data.classes),
    }
    return told | ({"path": data.path} if data.path else {})


def subset(total: int, most: int, *purpose: Any) -> Index:
    """At most ``most`` of ``total`` indices (0: all), drawn without replacement and sorted."""
    if most == 0 or most >= total:
        return np.arange(total, dtype=np.int32)
    seed, *rest = purpose
    draw = generator(seed, *rest).choice(total, most, replace=False)
    return np.sort(draw).astype(np.int32)


def epochs_needed(arm: Arm, n: int) -> int:
    if not arm.batch_size:
        return 0
    per_epoch = math.ceil(n / arm.batch_size)
    return math.ceil((arm.updates or max(1, round(arm.epochs * per_epoch))) / per_epoch)


def check_ranks(name: str, arm: Arm, n: int) -> None:
    """Raises `UserError` for a number of ranks that the arm has no use for."""
    ranks = arm.world_size
    if arm.kind == "train" and ranks > n:
        raise UserError(f"arms.{name}: {ranks} ranks share {n} training samples; use at most {n}")
    if arm.kind == "collectives" and ranks == 1:
        raise UserError(f"arms.{name}: kind = collectives needs world_size >= 2; received 1")
    if arm.slow is not None and ranks == 1:
        raise UserError(f"arms.{name}: slow holds up other ranks; world_size = 1 has none")


def check_length(arm: Arm, n: int, epochs: int) -> None:
    """Raises `UserError` for a trial whose sample order or records would not fit into memory."""
    updates = arm.updates or (epochs * math.ceil(n / arm.batch_size) if arm.batch_size else 0)
    if epochs * n > MOST_DEALT or updates > MOST_UPDATES:
        raise UserError(
            f"{epochs:,} epochs of {n:,} samples ({updates:,} updates) are too many: at most "
            f"{MOST_DEALT:,} samples and {MOST_UPDATES:,} updates a trial; lower epochs or updates"
        )


def parts_of(
    experiment: Experiment,
    spec: ModelSpec,
    data: Mapping[str, Any],
    weights: Mapping[str, NDArray[Any]],
    order: Mapping[str, NDArray[Any]],
    models: Mapping[str, ModelSpec],
    splits: Mapping[str, SplitPlan],
) -> dict[str, str]:
    """SHA-256 of each part of the plan, so that two plans can say where they differ."""
    told = {k: v for k, v in experiment.describe().items() if k not in EXECUTION}
    told["model"] = spec.describe()
    if models:
        told["models"] = {name: own.describe() for name, own in models.items()}
    if splits:  # also where the cut follows from a measurement
        told["splits"] = {name: list(split.cut) for name, split in splits.items()}
    told["data"] = {k: v for k, v in told["data"].items() if k != "name"}
    content = {k: data[k] for k in ("name", "sha256", "train", "test", "mean", "std")}
    content |= {k: data[k] for k in ("words", "length") if k in data}  # of a text
    return {
        "experiment": sha256(canonical(told)),
        "data": sha256(canonical(content)),
        "weights": digest(weights),
        "order": digest(order),
    }


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def save(plan: Plan, folder: Path) -> None:
    """Write ``plan.json``, ``weights.safetensors`` and ``order.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "weights.safetensors", pack(plan.weights))
    order = io.BytesIO()
    np.savez_compressed(order, **{k.replace("/", "."): v for k, v in plan.order.items()})
    write_bytes(folder / "order.npz", order.getvalue())
    write_json(
        folder / "plan.json",
        {
            "format": FORMAT,
            "hash": plan.hash,
            "parts": plan.parts,
            "data": plan.data,
            "model": plan.spec.describe(),
            "experiment": plan.experiment.describe(),
            **({"deals": plan.deals} if plan.deals else {}),
            **(
                {"models": {n: s.describe() for n, s in plan.models.items()}} if plan.models else {}
            ),
            **({"splits": described(plan)} if plan.splits else {}),
        },
    )


def described(plan: Plan) -> dict[str, Any]:
    """The split plans with their bytes, for readers of ``plan.json``."""
    arms = plan.experiment.arms
    return {
        name: {"cut": list(split.cut), **split.describe(arms[name].batch_size)}
        for name, split in plan.splits.items()
    }


def split_of(arm: Arm, spec: ModelSpec, told: Mapping[str, Any]) -> SplitPlan:
    """A split plan as it was frozen: with the cut that was found then."""
    assert arm.split is not None
    return arm.split.model_copy(update={"cut": told["cut"]}).plan(spec, arm.world_size)


def restore(folder: Path) -> Plan:
    """Read a plan back and verify its hash.

    Raises:
        UserError: missing, from a newer version, or changed since it was written.
    """
    with readable(f"{folder}: not a readable plan"):
        told = read_json(folder / "plan.json")
        weights = load_file(folder / "weights.safetensors")
        with np.load(folder / "order.npz", allow_pickle=False) as packed:
            order = {key.replace(".", "/"): packed[key] for key in packed.files}
        form = int(told["format"])
        if form <= FORMAT:
            experiment = Experiment.model_validate(told["experiment"])
            spec = ModelSpec.restore(told["model"])
            models = {n: ModelSpec.restore(m) for n, m in told.get("models", {}).items()}
            arms = experiment.arms
            splits = {
                name: split_of(arms[name], models.get(arms[name].model, spec), frozen)
                for name, frozen in told.get("splits", {}).items()
            }
            parts = parts_of(experiment, spec, told["data"], weights, order, models, splits)
            changed = [part for part in parts if parts[part] != told["parts"].get(part)]
    if form > FORMAT:
        raise UserError(f"{folder}: plan format {form} is newer than {FORMAT}; update dualml")
    if changed:
        raise UserError(f"{folder}: the plan was changed after it was made: {', '.join(changed)}")
    deals = told.get("deals", {})
    return Plan(experiment, spec, told["data"], weights, order, parts, deals, models, splits)
