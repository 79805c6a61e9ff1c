"""Freezing of an experiment and its data into a plan: everything drawn, partitioned, cut and
checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualml.algorithms.model import CLASSIFIERS, initial_weights, model
from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, prefix_errors
from dualml.common.seeds import make_generator
from dualml.experiment import pretrained
from dualml.experiment.arm import MAX_UPDATES, Arm
from dualml.experiment.batch_norm_checks import check_batch_norm
from dualml.experiment.batches import freeze_partitions
from dualml.experiment.data import Dataset
from dualml.experiment.data.dataset import with_channel_axis
from dualml.experiment.data.stats import statistics
from dualml.experiment.fingerprint import fingerprint_parts
from dualml.experiment.initial import Initial, ReadInitial
from dualml.experiment.offload_checks import check_budget
from dualml.experiment.plan import Index, Plan
from dualml.experiment.schema import Experiment
from dualml.experiment.split import Split, reference_times
from dualml.experiment.stateful import check_stateful, freeze_streams
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.zero.units import find_shared_layer, units_of, unsplittable_reason

MAX_POOL_INDICES = 2**28  # maximum indices in the order of one pool: 1 GiB


def freeze(experiment: Experiment, data: Dataset, read_initial: ReadInitial | None = None) -> Plan:
    """Compute the plan of an experiment: check it against the data, draw or read everything random,
    and write nothing.

    Args:
        read_initial: function that reads the file named by the experiment's ``initial``; may be
            None if the experiment names none.

    Raises:
        UserError: a model, an arm or a number of ranks does not fit the data.
    """
    spec = model_for(experiment, data)
    models = {name: model_for(experiment, data, arm) for name, arm in experiment.variants().items()}
    splits, stateful = dict[str, SplitPlan](), False
    for name, arm in experiment.arms.items():
        own = models.get(arm.variant, spec)
        with prefix_errors(f"arms.{name}"):
            recompute_groups(own, arm.recompute)
            if arm.split is not None:
                splits[name] = freeze_split(arm, arm.split, own)
            check_units(arm, own)
            if arm.kind == "train" and own.stateful:
                check_stateful(arm)
                stateful = True
    text = data.kind == "text"
    order = {
        "train": draw_subset(len(data.train_y), experiment.data.train, 0, "train", first=stateful),
        "test": draw_subset(len(data.test_y), experiment.data.test, 0, "test"),
    }
    if data.validation_y is not None:
        n = len(data.validation_y)
        order["validation"] = draw_subset(n, experiment.data.validation, 0, "validation")
    elif experiment.data.validation:
        raise UserError(
            f"data.validation = {experiment.data.validation} is for labelled sentences "
            f"(data.labels = true); {data.name} has no validation part: leave it out"
        )
    n = len(order["train"])
    for name, arm in experiment.arms.items():
        own = models.get(arm.variant, spec)
        if own.buffers and arm.kind == "train":
            with prefix_errors(f"arms.{name}"):
                check_batch_norm(arm, own, n)
    order["monitor"] = draw_subset(n, experiment.evaluation.train_samples, 0, "monitor")
    weights, deals = {}, dict[str, list[dict[str, Any]]]()
    initial = Initial()
    if experiment.initial:
        assert read_initial is not None
        initial = read_initial(experiment.initial, spec.tensors())
    given = initial.weights or pretrained.read_pretrained_weights(experiment, data)
    labels = None if text else data.train_y[order["train"]]
    for seed in experiment.seeds:
        for name, w in initial_weights(spec, seed).items():
            weights[f"seed{seed}/{name}"] = given.get(name, w)
        for other, own in models.items():
            for name, w in initial_weights(own, seed).items():
                weights[f"seed{seed}/{other}/{name}"] = w
        for name, arm in experiment.arms.items():
            if seed not in experiment.seeds_of(name):
                continue
            if models.get(arm.variant, spec).stateful:
                freeze_streams(name, arm, seed, n, order)
                continue
            key = f"seed{seed}/pool{arm.samples}"
            if key not in order:
                order[key] = draw_subset(n, arm.samples, seed, "pool", arm.samples)
            check_ranks(name, arm, len(order[key]))
            epochs = epochs_needed(arm, len(order[key]))
            check_length(arm, len(order[key]), epochs)
            if arm.partition:
                freeze_partitions(name, arm, seed, order[key], labels, order, deals)
                continue
            for epoch in range(epochs):
                if f"{key}/epoch{epoch}" not in order:
                    draw = make_generator(seed, "order", arm.samples, epoch)
                    order[f"{key}/epoch{epoch}"] = draw.permutation(order[key]).astype(np.int32)
    mean, std = normalisation_constants(experiment, data, order["train"])
    description = {
        "name": data.name,
        "source": data.source,
        "sha256": data.sha256,
        "notice": pretrained.pretrained_notice(experiment, data, initial.record),
        "train": n,
        **({"validation": len(order["validation"])} if "validation" in order else {}),
        "test": len(order["test"]),
        "mean": mean,
        "std": std,
        **(text_facts(experiment, data) if data.kind != "images" else {}),
        **({"path": data.path} if data.path else {}),
    }
    parts = fingerprint_parts(experiment, spec, description, weights, order, models, splits)
    return Plan(
        experiment, spec, description, weights, order, parts, deals, models, splits, initial.record
    )


def freeze_split(arm: Arm, split: Split, spec: ModelSpec) -> SplitPlan:
    """Compute the split plan of an arm; the layers are timed if it balances by time and gives no
    cut.

    Raises:
        UserError: the arm's model ``spec`` cannot be split as requested.
    """
    if spec.needs_padding_mask:
        raise UserError(
            f"model {spec.name!r} passes over padding, which each of its layers has to see; it "
            "cannot be split: leave out split"
        )
    timed = split.balance == "time" and not split.cut
    return split.plan(spec, arm.world_size, reference_times(spec) if timed else None)


def check_units(arm: Arm, spec: ModelSpec) -> None:
    """Raise `UserError` for an arm whose model ``spec`` cannot be divided into the units that
    ``zero`` 2 and 3 or offloaded weights need, or does not fit the budget of host memory."""
    bucket_bytes = arm.sharding.bucket_bytes
    if arm.zero > 1:
        units = units_of(spec, bucket_bytes, arm.world_size)
        if what := unsplittable_reason(spec, units):
            tied = "an untied head (tied = false), " if find_shared_layer(spec, units) else ""
            raise UserError(
                f"zero = {arm.zero} takes model {spec.name!r} apart between {what}; use zero = 1, "
                f"{tied}or one unit: leave out aggregation.bucket_bytes"
            )
    if arm.offload is None:
        return
    unsharded = arm.offload.is_offloaded("weights") and not arm.zero
    if unsharded and (what := unsplittable_reason(spec, units_of(spec, bucket_bytes, 1))):
        raise UserError(
            f"offload.weights takes model {spec.name!r} apart between {what}; offload the state "
            "alone, or one unit: leave out aggregation.bucket_bytes"
        )
    check_budget(arm.offload, spec, arm.rule, arm.sharding, arm.world_size)


def model_for(experiment: Experiment, data: Dataset, arm: Arm | None = None) -> ModelSpec:
    """Return the model of the arm, or the experiment's (``arm`` None), for these samples; for a
    text, with its vocabulary and window length.

    Raises:
        UserError: a model of images with a text, or the reverse; another shape; settings that only
            a text has, or that it cannot have.
    """
    name = experiment.model if arm is None else arm.model or experiment.model
    spec, sizes = model(name), experiment.data
    if data.kind != "images" and sizes.normalise != "published":
        raise UserError(
            f"data.normalise = {sizes.normalise} is for images; {data.name} is a text: leave it out"
        )
    if data.kind != "images":
        if not spec.takes_tokens:
            raise UserError(
                f"model {spec.name!r} takes {spec.input_shape} images; {data.name} is a text: use "
                "a model of text, such as rnn_lm, or a dataset of images"
            )
        if experiment.loss != "cross_entropy":
            raise UserError(f"loss = {experiment.loss} is for images; a text needs cross_entropy")
        classifies = spec.name in CLASSIFIERS
        if classifies != (data.kind == "labelled"):
            raise UserError(
                f"model {spec.name!r} classifies sentences: it needs data.labels = true"
                if classifies
                else f"data.labels = true is for models that classify sentences "
                f"({', '.join(CLASSIFIERS)}); {spec.name!r} goes on with a text"
            )
        length = data.train_x.shape[1]
        if classifies:
            if experiment.pretrained and spec.name == experiment.model:
                return pretrained.open_pretrained(experiment).spec(length, len(data.classes))
            sizes_of: dict[str, Any] = {"words": len(data.vocabulary), "classes": len(data.classes)}
            return model(spec.name, length=length, **sizes_of)
        own = experiment.model_settings(arm)
        return model(spec.name, words=len(data.classes), length=length, **own)
    if spec.takes_tokens:
        raise UserError(
            f"model {spec.name!r} takes tokens of a text; {data.name} has images: use a text, such "
            "as sentences, or a model of images"
        )
    shape = with_channel_axis(data.train_x[:1]).shape[1:]
    with prefix_errors(f"{data.name} has images of shape {shape}"):
        own = experiment.model_settings(arm)
        spec = model(spec.name, shape=shape, classes=len(data.classes), **own)
    for key in ("words", "length", "tokens"):
        if getattr(sizes, key) != type(sizes).model_fields[key].default:
            raise UserError(
                f"data.{key} = {getattr(sizes, key)} is for texts; {data.name} has images: leave "
                "it out"
            )
    return spec


def normalisation_constants(experiment: Experiment, data: Dataset, train: Index) -> tuple[Any, Any]:
    """Return the mean and standard deviation that normalise images: the published ones or, if the
    experiment asks for ``measured``, those of the training samples at the indices ``train``."""
    if experiment.data.normalise == "measured":
        everything = len(train) == len(data.train_x)
        return statistics(data.train_x if everything else data.train_x[train]).constants
    mean, std = (c if isinstance(c, int | float) else list(c) for c in (data.mean, data.std))
    return mean, std


def text_facts(experiment: Experiment, data: Dataset) -> dict[str, Any]:
    """Return the facts of a text or of labelled sentences that are needed to make the same samples
    again: ``kind``, ``words``, ``length``, ``vocabulary`` (its size) and, where they apply,
    ``tokens``, ``labels``, ``classes``, ``pretrained``, ``cut``, ``vocabulary_sha256``. Not for
    images."""
    facts: dict[str, Any] = {
        "kind": data.kind,
        "words": experiment.data.words,
        "length": data.train_x.shape[1],
        "vocabulary": len(data.vocabulary or data.classes),
    }
    if experiment.data.tokens != "words":
        facts["tokens"] = experiment.data.tokens
    if data.kind == "labelled":
        facts |= {"labels": True, "classes": list(data.classes)}
    if data.pieces is not None:
        facts |= {"pretrained": experiment.pretrained, "cut": data.cut}
        facts |= {"vocabulary_sha256": data.pieces.sha256}
    return facts


def draw_subset(total: int, most: int, *purpose: Any, first: bool = False) -> Index:
    """Return at most ``most`` of the indices 0 … ``total`` − 1 (0: all), int32 and sorted, drawn
    without replacement by the generator of ``purpose``, a seed and names; or the first ones, if
    ``first``."""
    if most == 0 or most >= total:
        return np.arange(total, dtype=np.int32)
    if first:
        return np.arange(most, dtype=np.int32)
    seed, *rest = purpose
    draw = make_generator(seed, *rest).choice(total, most, replace=False)
    return np.sort(draw).astype(np.int32)


def epochs_needed(arm: Arm, n: int) -> int:
    """Return the number of epochs, rounded up, that an arm's updates take with ``n`` samples; 0 if
    each update takes all samples."""
    if not arm.batch_size:
        return 0
    per_epoch = math.ceil(n / arm.batch_size)
    return math.ceil((arm.updates or max(1, round(arm.epochs * per_epoch))) / per_epoch)


def check_ranks(name: str, arm: Arm, n: int) -> None:
    """Raise `UserError` for an arm with more ranks than training samples (``n``), or with one rank
    that times collectives or has a straggler; ``name`` is the arm's."""
    ranks = arm.world_size
    if arm.kind == "train" and ranks > n:
        raise UserError(f"arms.{name}: {ranks} ranks share {n} training samples; use at most {n}")
    if arm.kind == "collectives" and ranks == 1:
        raise UserError(f"arms.{name}: kind = collectives needs world_size >= 2; received 1")
    if arm.slow is not None and ranks == 1:
        raise UserError(f"arms.{name}: straggler holds up other ranks; world_size = 1 has none")


def check_length(arm: Arm, n: int, epochs: int) -> None:
    """Raise `UserError` for a trial whose sample order or records would not fit into memory: an arm
    with ``epochs`` epochs of ``n`` samples."""
    updates = arm.updates or (epochs * math.ceil(n / arm.batch_size) if arm.batch_size else 0)
    if epochs * n > MAX_POOL_INDICES or updates > MAX_UPDATES:
        raise UserError(
            f"{epochs:,} epochs of {n:,} samples ({updates:,} updates) are too many: at most "
            f"{MAX_POOL_INDICES:,} samples and {MAX_UPDATES:,} updates a trial; lower epochs or "
            "updates"
        )
