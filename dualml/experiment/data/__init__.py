"""Datasets as framework-neutral NumPy arrays, the only training data of every backend."""

from dualml.common.arrays import fingerprint as fingerprint
from dualml.experiment.data.dataset import Dataset, normalised
from dualml.experiment.data.registry import DATASETS, TEXTS
from dualml.experiment.data.sources import load, load_planned

__all__ = ["DATASETS", "TEXTS", "Dataset", "fingerprint", "load", "load_planned", "normalised"]
