"""Datasets as framework-neutral NumPy arrays, the only training data of every backend."""

from dualml.arrays import fingerprint as fingerprint
from dualml.data.dataset import Dataset, normalised
from dualml.data.registry import DATASETS, TEXTS
from dualml.data.sources import load, load_planned

__all__ = ["DATASETS", "TEXTS", "Dataset", "fingerprint", "load", "load_planned", "normalised"]
