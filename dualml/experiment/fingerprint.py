"""Fingerprints of the parts of a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.spec import ModelSpec
from dualml.experiment.schema import Experiment
from dualml.parallel.split.plan import SplitPlan

#: Keys of an experiment that do not change what is computed, only how it is run, judged or shown;
#: and the origin of initial weights, whose values are in the other parts.
EXECUTION = (
    *("title", "question", "limits", "quick", "epochs_times", "parity"),
    *("pretrained", "initial"),
)
#: Keys of the data that only text datasets have.
TEXT_KEYS = ("words", "length", "validation", "vocabulary_sha256")


def fingerprint_parts(
    experiment: Experiment,
    spec: ModelSpec,
    data: Mapping[str, Any],
    weights: Mapping[str, NDArray[Any]],
    order: Mapping[str, NDArray[Any]],
    models: Mapping[str, ModelSpec],
    splits: Mapping[str, SplitPlan],
) -> dict[str, str]:
    """Return SHA-256 of the parts ``experiment`` (with models and cuts), ``data``, ``weights`` and
    ``order`` of a plan, so that two plans can say where they differ. Settings that do not change
    what is computed do not count."""
    protocol = {k: v for k, v in experiment.describe().items() if k not in EXECUTION}
    protocol["model"] = spec.describe()
    if models:
        protocol["models"] = {name: own.describe() for name, own in models.items()}
    if splits:  # also where the cut follows from a measurement
        protocol["splits"] = {name: list(split.cut) for name, split in splits.items()}
    protocol["data"] = {k: v for k, v in protocol["data"].items() if k != "name"}
    content = {k: data[k] for k in ("name", "sha256", "train", "test", "mean", "std")}
    content |= {k: data[k] for k in TEXT_KEYS if k in data}
    return {
        "experiment": sha256(canonical(protocol)),
        "data": sha256(canonical(content)),
        "weights": arrays_digest(weights),
        "order": arrays_digest(order),
    }


def hash_parts(parts: Mapping[str, str]) -> str:
    """Return the plan's hash, SHA-256, from the fingerprints of its parts."""
    return sha256(canonical(parts))


def canonical(value: Any) -> bytes:
    """Return a JSON value as bytes, the same for equal values: with sorted keys and without white
    space. NaN and infinities raise `ValueError`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes as hexadecimal text."""
    return hashlib.sha256(content).hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256, hexadecimal, over names, dtypes, shapes and bytes of arrays, in the order
    of their names."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
